"""A record as the bytes of a TFDS example, and back.

The context and a text with its targets stay JSON, so that any schema can encode them later.
"""

import json
from collections.abc import Mapping

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2, tf_feature_pb2

from cbert.data.records import Record
from cbert.data.text_records import Text

Fields = Mapping[str, tf_feature_pb2.Feature]  # Those of an example, by name.
WEIGHT = "weight"
_LOG_PROBABILITY, _RANK = "reference/log_probability", "reference/rank"
_WITHOUT_CONTEXT = "reference/without_context"
_encode_json = json.JSONEncoder(ensure_ascii=False).encode  # Made once, as records are many.


def features(is_text: bool, is_weighted: bool) -> tfds.features.FeaturesDict:
    """The features of an example as TFDS declares them.

    Args:
      is_text: Whether the examples are texts, not items.
      is_weighted: Whether some example has a weight; the others have an empty list of it.
    """
    text = tfds.features.Text()
    weight = {WEIGHT: tfds.features.Sequence(np.float32)} if is_weighted else {}
    if is_text:
        return tfds.features.FeaturesDict(
            dict.fromkeys(("id", "group", "text", "context"), text) | weight
        )
    return tfds.features.FeaturesDict(
        {
            "id": text,
            "group": text,
            "items": tfds.features.Sequence(text),
            "context": text,
            "reference": {
                "log_probability": tfds.features.Sequence(np.float32),
                "rank": tfds.features.Sequence(np.int32),
                "without_context": tfds.features.Sequence(np.float32),
            },
            **weight,
        }
    )


def to_bytes(record: Record) -> bytes:
    """Serialises a record; equal records give equal bytes, which TFDS does not promise."""
    example = tf_example_pb2.Example()
    if record.text is None:
        example.CopyFrom(_NO_REFERENCE)  # Half the time of making its empty lists anew.
    fields = example.features.feature
    _add_texts(fields["id"], [record.id])
    _add_texts(fields["group"], [record.group])
    _add_texts(fields["context"], [_encode_json(record.context)])
    if record.text is None:
        _add_texts(fields["items"], record.items)
    else:
        _add_texts(fields["text"], [record.text.to_json()])
    if record.reference is not None:
        _add_reference(fields, record.reference)
    if record.weight != 1:
        fields[WEIGHT].float_list.value.append(record.weight)
    return example.SerializeToString(deterministic=True)


def _add_texts(feature: tf_feature_pb2.Feature, values: list[str]) -> None:
    feature.bytes_list.value.extend([value.encode() for value in values])


def _add_reference(fields: Fields, reference: dict[str, list[float]]) -> None:
    fields[_LOG_PROBABILITY].float_list.value.extend(reference["log_probability"])
    fields[_WITHOUT_CONTEXT].float_list.value.extend(reference.get("without_context", []))
    fields[_RANK].int64_list.value.extend(map(int, reference["rank"]))


def _no_reference() -> tf_example_pb2.Example:
    """The example of a set whose reference has three empty lists, for TFDS expects them."""
    example = tf_example_pb2.Example()
    fields = example.features.feature
    fields[_LOG_PROBABILITY].float_list.SetInParent()
    fields[_WITHOUT_CONTEXT].float_list.SetInParent()
    fields[_RANK].int64_list.SetInParent()
    return example


_NO_REFERENCE = _no_reference()


def from_bytes(data: bytes) -> Record:
    """The record; its numbers are rounded to float32 and its own `split` is lost.

    Those in its context stay as they are, for it is JSON.
    """
    fields = tf_example_pb2.Example.FromString(data).features.feature
    is_text = "text" in fields
    return Record(
        id=string_of(fields, "id"),
        group=string_of(fields, "group"),
        items=items_of(fields),
        context=json.loads(string_of(fields, "context")),
        split="",
        reference=reference_of(fields),
        text=Text.from_json(string_of(fields, "text")) if is_text else None,
        weight=weight_of(fields),
    )


def items_of(fields: Fields) -> list[str]:
    """An example's items, none where it is a text."""
    return [item.decode() for item in fields["items"].bytes_list.value]


def reference_of(fields: Fields) -> dict[str, list[float]] | None:
    """An example's reference, see `Record`."""
    reference: dict[str, list[float]] = {
        "log_probability": list(fields[_LOG_PROBABILITY].float_list.value),
        "rank": list(fields[_RANK].int64_list.value),
    }
    if without_context := list(fields[_WITHOUT_CONTEXT].float_list.value):
        reference["without_context"] = without_context
    return reference if reference["rank"] else None


def weight_of(fields: Fields) -> float:
    """An example's weight, 1 where it has none."""
    return fields[WEIGHT].float_list.value[0] if WEIGHT in fields else 1.0


def string_of(fields: Fields, name: str) -> str:
    """The text of a field that has one value."""
    return fields[name].bytes_list.value[0].decode()
