"""Prepared data in memory, as columns."""

import contextlib
import difflib
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2

from cbert import progress
from cbert.data import builder, column_cache, columns, text_columns
from cbert.data.columns import Split
from cbert.data.examples import WEIGHT, items_of, reference_of, string_of, weight_of
from cbert.data.text import Tokenizer
from cbert.data.text_records import Text
from cbert.errors import UserError, one_line, shown
from cbert.schema import TEXT, Schema, schema_file

_INFO, _FEATURES = "dataset_info.json", "features.json"  # TFDS reads features from both.
# The strings of a description of features: classes of TFDS, and words without dots or quotes.
_FEATURES_TEXT = re.compile(r"tensorflow_datasets\.core\.features\.\w+\.\w+|[\w-]*", re.ASCII)


def load_schema(data_dir: str, name: str) -> Schema:
    """The schema of a prepared data set; raises `UserError` where there is none."""
    return schema_file.load(_directory(data_dir, name) / schema_file.FILE)


def _directory(data_dir: str, name: str) -> pathlib.Path:
    path = builder.directory(data_dir, name)
    if not (path / _INFO).exists():
        there = pathlib.Path(data_dir).expanduser().glob(f"*/{builder.VERSION}/{_INFO}")
        near = difflib.get_close_matches(name, [info.parts[-3] for info in there], 1)
        meant = f"did you mean {near[0]}? Else " if near else ""
        raise UserError(
            f"{path}: no prepared data; {meant}prepare {shown(name)} first, or "
            "give data_dir=DIR, or of a config set data.dir=DIR, where it lies"
        )
    return path


def split_names(data_dir: str, name: str) -> list[str]:
    """The splits that prepared data have."""
    return sorted(_opened(_directory(data_dir, name)).info.splits)


def sizes(data_dir: str, name: str) -> dict[str, dict[str, int]]:
    """Split to its numbers of examples and of bytes before compression, as `prepare` wrote."""
    path = _directory(data_dir, name)
    with _reading(path):
        info = json.loads((path / _INFO).read_text(encoding="utf-8"))
        return {
            split["name"]: {
                "examples": sum(map(int, split.get("shardLengths", ()))),
                "bytes": int(split.get("numBytes", 0)),
            }
            for split in info["splits"]
        }


def groups_across_splits(data_dir: str, name: str) -> int:
    """The number of groups in several splits of prepared data, as `prepare` counted them."""
    metadata: Any = _opened(_directory(data_dir, name)).info.metadata
    return metadata.get(builder.GROUPS_ACROSS_SPLITS, 0)


def _opened(path: pathlib.Path) -> tfds.core.DatasetBuilder:
    with _reading(path):
        _check_classes(path)
        return tfds.builder_from_directory(path)


def _check_classes(path: pathlib.Path) -> None:
    """Raises `ValueError` for a class that is not TFDS's, whose module TFDS would run."""
    info, features = (
        json.loads((path / name).read_text(encoding="utf-8")) for name in (_INFO, _FEATURES)
    )
    for text in _strings([info.get("features"), features]):
        if not _FEATURES_TEXT.fullmatch(text):
            raise ValueError(f"its features name {shown(text)}, which is no class of TFDS")


def _strings(value: Any) -> Iterator[str]:
    """The strings in parsed JSON, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


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
    cache = column_cache.location(path, split, schema)
    if (known := column_cache.read(cache)) is not None:
        return known
    with _reading(path):
        raw = read_only.as_data_source(
            split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
        )
    schema.check_room(len(raw))
    tokenizer = Tokenizer(schema) if schema.kind == TEXT else None
    is_weighted = WEIGHT in read_only.info.features

    def blocks() -> Iterator[Split]:
        starts = range(0, len(raw), 1024)
        for start in progress.bar(starts, desc=f"loading {split}", unit=" blocks"):
            block = _block(raw, start, path)
            try:
                yield encode(block, schema, tokenizer, is_weighted)
            except UserError as error:
                raise UserError(f"{path}: {error}") from None

    # From the cache a split is mapped, and need not fit into memory.
    written = column_cache.read(cache) if column_cache.write(cache, blocks()) else None
    return columns.joined(list(blocks())) if written is None else written


def _block(raw: Any, start: int, path: pathlib.Path) -> list[Any]:
    """Up to 1024 records as protocol buffer feature maps."""
    with _reading(path):
        texts = raw.__getitems__(range(start, min(start + 1024, len(raw))))
        return [tf_example_pb2.Example.FromString(text).features.feature for text in texts]


def encode(
    examples: list[Any],
    schema: Schema,
    tokenizer: Tokenizer | None = None,
    is_weighted: bool = False,
) -> Split:
    """Encodes TFDS examples, as protocol buffer feature maps, column by column.

    Args:
      examples: The examples of one data set.
      schema: That of the data set or of a checkpoint.
      tokenizer: That of the schema, where it is one of texts.
      is_weighted: Whether an example of the data set has a weight.

    Raises:
      UserError: the examples are texts and the schema is one of items, or the reverse.
    """

    def strings(name: str) -> list[str]:
        return [string_of(example, name) for example in examples]

    is_text = "text" in examples[0]
    if is_text != (tokenizer is not None):
        holds = "texts" if is_text else "items"
        raise UserError(f"the data hold {holds}; the schema is one of the kind {schema.kind!r}")
    contexts = strings("context")
    texts = strings("text") if is_text else []
    token_columns: dict[str, np.ndarray] = {}
    targets: dict[str, np.ndarray] = {}
    if tokenizer is not None:
        parsed = [Text.from_json(text) for text in texts]
        items, token_columns, targets = text_columns.encode(parsed, schema, tokenizer)
    else:
        items = schema.encode_items([items_of(example) for example in examples])
    example_columns = {}
    if is_weighted:
        example_columns[WEIGHT] = np.array([weight_of(e) for e in examples], np.float32)
    return Split(
        ids=strings("id"),
        groups=strings("group"),
        contexts=contexts,
        items=items,
        context=schema.encode_recorded([json.loads(context) for context in contexts]),
        reference=None if is_text else _reference(examples, schema.max_items),
        token_columns=token_columns,
        targets=targets,
        texts=texts,
        example_columns=example_columns,
    )


def _reference(examples: list[Any], max_items: int) -> dict[str, np.ndarray] | None:
    columns = {
        name: np.zeros((len(examples), max_items), np.float32)
        for name in ("log_probability", "rank", "without_context")
    }
    for row, example in enumerate(examples):
        reference = reference_of(example)
        if reference is None:
            return None
        for name, column in columns.items():
            column[row, : len(reference["rank"])] = reference.get(name, np.nan)
    return columns
