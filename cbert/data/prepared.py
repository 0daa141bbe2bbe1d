"""Prepared data in memory, as columns."""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2

from cbert import progress
from cbert.data import builder, columns
from cbert.data.columns import Split
from cbert.errors import UserError, one_line, shown
from cbert.schema import Schema, schema_file


def load_schema(data_dir: str, name: str) -> Schema:
    """The schema of a prepared data set; raises `UserError` where there is none."""
    return schema_file.load(_directory(data_dir, name) / "schema.json")


def _directory(data_dir: str, name: str) -> pathlib.Path:
    path = builder.directory(data_dir, name)
    if not (path / "dataset_info.json").exists():
        raise UserError(
            f"{path}: no prepared data; prepare {shown(name)} in {shown(data_dir)} first, by "
            "experiments.prepare"
        )
    return path


def split_names(data_dir: str, name: str) -> list[str]:
    """The splits that prepared data have."""
    return sorted(_opened(_directory(data_dir, name)).info.splits)


def _opened(path: pathlib.Path) -> tfds.core.DatasetBuilder:
    with _reading(path):
        return tfds.builder_from_directory(path)


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
    """Turns whatever damaged files raise into one line."""
    try:
        yield
    except (MemoryError, PermissionError):
        raise
    except Exception as error:
        raise UserError(
            f"{path}: the prepared data are damaged ({one_line(error)[:200]}); prepare them "
            "again with overwrite"
        ) from None


def load(data_dir: str, name: str, split: str, schema: Schema) -> Split:
    """A split of prepared data, encoded by a schema; quick from its second use on.

    Raises:
      UserError: there is no such split, or its files are damaged.
    """
    path = _directory(data_dir, name)
    read_only = _opened(path)
    if split not in read_only.info.splits:
        raise UserError(
            f"{path} has no split {split!r}; it has {', '.join(sorted(read_only.info.splits))}"
        )
    cache = columns.location(path, split, schema)
    encoded = columns.read(cache)
    if encoded is None:
        with _reading(path):
            raw = read_only.as_data_source(
                split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
            )
        schema.check_room(len(raw))
        bar = progress.bar(range(0, len(raw), 1024), desc=f"loading {split}", unit=" blocks")
        # Block by block, for a record takes far more memory than its columns.
        encoded = columns.joined([encode(_block(raw, start, path), schema) for start in bar])
        columns.write(cache, encoded)
    return encoded


def _block(raw: Any, start: int, path: pathlib.Path) -> list[Any]:
    """Up to 1024 records as protocol buffer feature maps."""
    with _reading(path):
        texts = raw.__getitems__(range(start, min(start + 1024, len(raw))))
        return [tf_example_pb2.Example.FromString(text).features.feature for text in texts]


def encode(examples: list[Any], schema: Schema) -> Split:
    """Encodes TFDS examples, as protocol buffer feature maps, column by column."""

    def text(example: Any, name: str) -> str:
        return example[name].bytes_list.value[0].decode()

    contexts = [text(example, "context") for example in examples]
    parsed = [json.loads(context) for context in contexts]
    return Split(
        ids=[text(example, "id") for example in examples],
        groups=[text(example, "group") for example in examples],
        contexts=contexts,
        items=schema.encode_items(
            [[item.decode() for item in e["items"].bytes_list.value] for e in examples]
        ),
        context=schema.encode_contexts(parsed),
        reference=_reference(examples, schema.max_items),
    )


def _reference(examples: list[Any], max_items: int) -> dict[str, np.ndarray] | None:
    if not all(len(e["reference/rank"].int64_list.value) for e in examples):
        return None
    reference = {
        name: np.zeros((len(examples), max_items), np.float32)
        for name in ("log_probability", "rank")
    }
    for row, example in enumerate(examples):
        values = example["reference/log_probability"].float_list.value
        reference["log_probability"][row, : len(values)] = values
        reference["rank"][row, : len(values)] = example["reference/rank"].int64_list.value
    return reference
