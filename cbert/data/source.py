"""Prepared data in memory, as columns, and batches that are functions of (seed, step)."""

import contextlib
import functools
import json
import pathlib
import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2

from cbert import progress
from cbert.data import builder, columns
from cbert.data.columns import Split
from cbert.errors import UserError, one_line
from cbert.schema import Schema, schema_file


def load_schema(data_dir: str, name: str) -> Schema:
    """The schema of a prepared data set; raises `UserError` where there is none."""
    return schema_file.load(_found(data_dir, name) / "schema.json")


def _found(data_dir: str, name: str) -> pathlib.Path:
    path = builder.directory(data_dir, name)
    if not (path / "dataset_info.json").exists():
        raise UserError(
            f"{path}: no prepared data; run python -m experiments.prepare "
            f"{shlex.join([f'--name={name}', f'--data_dir={data_dir}'])} with --input=FILE or "
            "--synthetic=stylist"
        )
    return path


def split_names(data_dir: str, name: str) -> list[str]:
    """The splits that prepared data have."""
    return sorted(_opened(_found(data_dir, name)).info.splits)


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
            "again with --overwrite"
        ) from None


def load(data_dir: str, name: str, split: str, schema: Schema) -> Split:
    """A split of prepared data, encoded by a schema; quick from its second use on.

    Raises:
      UserError: there is no such split, or its files are damaged.
    """
    path = _found(data_dir, name)
    read_only = _opened(path)
    if split not in read_only.info.splits:
        raise UserError(
            f"{path} has no split {split!r}; it has {', '.join(sorted(read_only.info.splits))}"
        )
    cache = columns.location(path, split, schema)
    found = columns.read(cache)
    if found is None:
        with _reading(path):
            raw = read_only.as_data_source(
                split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
            )
        schema.check_room(len(raw))
        bar = progress.bar(range(0, len(raw), 1024), desc=f"loading {split}", unit=" blocks")
        # Block by block, for a record takes far more memory than its columns.
        found = columns.joined([encode(_block(raw, start, path), schema) for start in bar])
        columns.write(cache, found)
    return found


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
    found = {
        name: np.zeros((len(examples), max_items), np.float32)
        for name in ("log_probability", "rank")
    }
    for row, example in enumerate(examples):
        values = example["reference/log_probability"].float_list.value
        found["log_probability"][row, : len(values)] = values
        found["rank"][row, : len(values)] = example["reference/rank"].int64_list.value
    return found


# Steps of one padded length that follow each other, so that one dispatch can take them.
BLOCK = 8


class Batches:
    """Which rows make up the batch of a step: a function of (seed, step).

    An epoch sorts its sets by length and cuts them into batches, so that little is spent on
    padding, and shuffles the batches in blocks of one padded length. What a step is padded to
    depends on the data set and the step alone; the seed decides which sets of that length fill
    it. The sets that do not fill a last batch are left out, other ones in each epoch.
    """

    def __init__(
        self, lengths: np.ndarray, batch_size: int, seed: int, buckets: int = 8
    ) -> None:
        if len(lengths) < batch_size:
            raise UserError(
                f"train.batch_size is {batch_size}, the training split has {len(lengths)} "
                "sets; lower it"
            )
        self._lengths = lengths
        self._batch_size = batch_size
        self.seed = seed
        self._bounds = bucket_bounds(lengths, buckets)
        self.steps_per_epoch = len(lengths) // batch_size
        self._epoch = functools.lru_cache(maxsize=2)(self._make_epoch)

    def __call__(self, step: int) -> tuple[np.ndarray, int]:
        """The rows `int32 [B]` of a step (counted from 0) and its padded length."""
        epoch, place = divmod(step, self.steps_per_epoch)
        rows, lengths = self._epoch(epoch)
        return rows[place], int(lengths[place])

    def several(self, step: int, most: int) -> tuple[np.ndarray, int]:
        """The rows of `most` steps, `int32 [most, B]`, if they have one padded length, else of
        the first alone, `[1, B]`; and that length.
        """
        found = [self(number) for number in range(step, step + most)]
        rows, lengths = zip(*found, strict=True)
        count = most if len(set(lengths)) == 1 else 1
        return np.stack(rows[:count]), lengths[0]

    def _make_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        kept = self.steps_per_epoch * self._batch_size
        shared = np.random.default_rng([epoch])
        chosen = shared.permutation(len(self._lengths))[:kept]
        own = np.random.default_rng([self.seed, epoch]).permutation(len(self._lengths))
        # The seed permutes sets of one length among each other, so lengths stay in place.
        order = np.lexsort((own[chosen], self._lengths[chosen]))
        rows = chosen[order].reshape(self.steps_per_epoch, self._batch_size)
        longest = self._lengths[rows[:, -1]]
        padded = self._bounds[np.searchsorted(self._bounds, longest)]
        blocks = _blocks(shared.permutation(len(padded)), padded)
        shuffled = np.concatenate([blocks[place] for place in shared.permutation(len(blocks))])
        return rows[shuffled].astype(np.int32), padded[shuffled]


def _blocks(steps: np.ndarray, padded: np.ndarray) -> list[np.ndarray]:
    """The steps in blocks of at most `BLOCK` of one padded length."""
    found = []
    for length in np.unique(padded):
        inside = steps[padded[steps] == length]
        found += np.split(inside, np.arange(BLOCK, len(inside), BLOCK))
    return found


def bucket_bounds(lengths: np.ndarray, buckets: int) -> np.ndarray:
    """At most `buckets` padded lengths, chosen so that padding is least.

    Dynamic programming over the lengths that occur; `cells[first, last]` is what a bucket
    of all lengths from the first to the last fills, padding included.
    """
    values, counts = np.unique(lengths, return_counts=True)
    shorter = np.concatenate([[0], np.cumsum(counts)])
    cells = values * np.maximum(shorter[None, 1:] - shorter[:-1, None], 0).astype(np.float64)
    cells[np.tril_indices(len(values), -1)] = np.inf
    best, bounds = cells[0], [[value] for value in values]
    for _ in range(buckets - 1):
        total = np.concatenate([[0.0], best[:-1]])[:, None] + cells
        first = total.argmin(axis=0)
        bounds = [
            [*bounds[start - 1], value] if start else [value]
            for start, value in zip(first, values, strict=True)
        ]
        best = total.min(axis=0)
    return np.array(bounds[-1])
