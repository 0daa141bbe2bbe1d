"""A record as the bytes of a TFDS example, and back.

The context stays JSON text, so that any schema can encode it later.
"""

import json

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2, tf_feature_pb2

from cbert.data.records import Record

_LOG_PROBABILITY, _RANK = "reference/log_probability", "reference/rank"


def features() -> tfds.features.FeaturesDict:
    """What TFDS is told of an example."""
    text = tfds.features.Text()
    return tfds.features.FeaturesDict(
        {
            "id": text,
            "group": text,
            "items": tfds.features.Sequence(text),
            "context": text,
            "reference": {
                "log_probability": tfds.features.Sequence(np.float32),
                "rank": tfds.features.Sequence(np.int32),
            },
        }
    )


def to_bytes(record: Record) -> bytes:
    """Serialises a record; equal records give equal bytes, which TFDS does not promise."""
    reference = record.reference or {"log_probability": [], "rank": []}
    fields = {
        "id": _text([record.id]),
        "group": _text([record.group]),
        "items": _text(record.items),
        "context": _text([json.dumps(record.context, ensure_ascii=False)]),
        _LOG_PROBABILITY: tf_feature_pb2.Feature(
            float_list=tf_feature_pb2.FloatList(value=reference["log_probability"])
        ),
        _RANK: tf_feature_pb2.Feature(
            int64_list=tf_feature_pb2.Int64List(value=map(int, reference["rank"]))
        ),
    }
    example = tf_example_pb2.Example(features=tf_feature_pb2.Features(feature=fields))
    return example.SerializeToString(deterministic=True)


def _text(values: list[str]) -> tf_feature_pb2.Feature:
    encoded = tf_feature_pb2.BytesList(value=[value.encode() for value in values])
    return tf_feature_pb2.Feature(bytes_list=encoded)


def from_bytes(data: bytes) -> Record:
    """The record; its log-probabilities are rounded to float32 and its own `split` is lost."""
    fields = tf_example_pb2.Example.FromString(data).features.feature
    rank = list(fields[_RANK].int64_list.value)
    log_probability = list(fields[_LOG_PROBABILITY].float_list.value)
    return Record(
        id=fields["id"].bytes_list.value[0].decode(),
        group=fields["group"].bytes_list.value[0].decode(),
        items=[item.decode() for item in fields["items"].bytes_list.value],
        context=json.loads(fields["context"].bytes_list.value[0]),
        split="",
        reference={"log_probability": log_probability, "rank": rank} if rank else None,
    )


def id_of(data: bytes) -> str:
    """The record's id alone."""
    fields = tf_example_pb2.Example.FromString(data).features.feature
    return fields["id"].bytes_list.value[0].decode()
