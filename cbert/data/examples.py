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

WEIGHT = "weight"
_LOG_PROBABILITY, _RANK = "reference/log_probability", "reference/rank"
_WITHOUT_CONTEXT = "reference/without_context"


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
    fields = {
        "id": _text([record.id]),
        "group": _text([record.group]),
        "context": _text([json.dumps(record.context, ensure_ascii=False)]),
    }
    fields |= (
        _item_fields(record)
        if record.text is None
        else {"text": _text([record.text.to_json()])}
    )
    if record.weight != 1:
        fields[WEIGHT] = _numbers([record.weight])
    example = tf_example_pb2.Example(features=tf_feature_pb2.Features(feature=fields))
    return example.SerializeToString(deterministic=True)


def _item_fields(record: Record) -> dict[str, tf_feature_pb2.Feature]:
    reference = record.reference or {"log_probability": [], "rank": []}
    return {
        "items": _text(record.items),
        _LOG_PROBABILITY: _numbers(reference["log_probability"]),
        _WITHOUT_CONTEXT: _numbers(reference.get("without_context", [])),
        _RANK: tf_feature_pb2.Feature(
            int64_list=tf_feature_pb2.Int64List(value=map(int, reference["rank"]))
        ),
    }


def _text(values: list[str]) -> tf_feature_pb2.Feature:
    encoded = tf_feature_pb2.BytesList(value=[value.encode() for value in values])
    return tf_feature_pb2.Feature(bytes_list=encoded)


def _numbers(values: list[float]) -> tf_feature_pb2.Feature:
    return tf_feature_pb2.Feature(float_list=tf_feature_pb2.FloatList(value=values))


def from_bytes(data: bytes) -> Record:
    """The record; its numbers are rounded to float32 and its own `split` is lost.

    Those in its context stay as they are, for it is JSON.
    """
    fields = tf_example_pb2.Example.FromString(data).features.feature
    is_text = "text" in fields
    reference: dict[str, list[float]] = {
        "log_probability": list(fields[_LOG_PROBABILITY].float_list.value),
        "rank": list(fields[_RANK].int64_list.value),
    }
    if without_context := list(fields[_WITHOUT_CONTEXT].float_list.value):
        reference["without_context"] = without_context
    return Record(
        id=_only(fields, "id"),
        group=_only(fields, "group"),
        items=[item.decode() for item in fields["items"].bytes_list.value],
        context=json.loads(_only(fields, "context")),
        split="",
        reference=reference if reference["rank"] else None,
        text=Text.from_json(_only(fields, "text")) if is_text else None,
        weight=weight_of(fields),
    )


def weight_of(fields: Mapping[str, tf_feature_pb2.Feature]) -> float:
    """An example's weight, 1 where it has none."""
    return fields[WEIGHT].float_list.value[0] if WEIGHT in fields else 1.0


def id_of(data: bytes) -> str:
    """The record's id alone."""
    fields = tf_example_pb2.Example.FromString(data).features.feature
    return _only(fields, "id")


def _only(fields: Mapping[str, tf_feature_pb2.Feature], name: str) -> str:
    """The text of a field that has one value."""
    return fields[name].bytes_list.value[0].decode()
