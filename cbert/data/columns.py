"""A split as columns in memory, and their cache beside prepared data.

The cache is one Arrow stream a split and schema, which is mapped into memory when it is read,
and at its end a checksum, which Arrow has not. It may be deleted at any time.

Legend: M examples, L positions, T values of a target.
"""

import dataclasses
import functools
import hashlib
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow

from cbert import errors, files
from cbert.data.column_scratch import ColumnScratch
from cbert.schema import PAD_ITEM, Schema, schema_file

FORMAT = "5"
# The columns `[M, L]` that a batch cuts to its padded length.
TOKEN_COLUMNS = ("items", "segments", "tags", "word_starts")
_TEXTS = ("ids", "groups", "contexts")
_TABLES = ("context", "token_columns", "targets", "example_columns")
_BLOCK = 2**16  # Rows whose tokens are counted at once.
_CHECKSUM = 4  # Bytes, CRC-32 of all before them.


class Texts(Sequence[str]):
    """Strings that stay in the file's own memory until one is asked for."""

    def __init__(self, column: pyarrow.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:  # Else a part of a large split would make a list of the whole.
                return self._column.slice(start, max(stop - start, 0)).to_pylist()
            return self._column.to_pylist()[index]
        return self._column[int(index)].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._column.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


@dataclasses.dataclass(frozen=True)
class Split:
    """One split, encoded by a schema. M examples of at most L items.

    Attributes:
      ids: `[M]` strings.
      groups: `[M]` strings.
      contexts: `[M]` the contexts as JSON text, as they were given.
      items: `int32 [M, L]`, codes of the schema, padded at the end with `PAD_ITEM`; the codes
        of a text's tokens.
      context: Feature name to its coded column, see `Feature.encode`.
      reference: `log_probability`, `rank` and `without_context`, each `float32 [M, L]`, the
        last one NaN where it is not known; or None.
      token_columns: Further columns of each token of a text; empty for items:
        `segments` `int8 [M, L]`, 1 in the second text and 0 elsewhere;
        `tags` `int32 [M, L]`, the tag's code at the first piece of each word and
        `UNKNOWN_LABEL` elsewhere; `word_starts` `int32 [M, L]`, the word's index at its first
        piece and -1 elsewhere.
      targets: The targets of a supervised task, by the kind of the schema's target:
        `label` `int32 [M]` (`UNKNOWN_LABEL` where missing); `labels` `float32 [M, T]` of 0
        and 1 (-1 where missing), and `unknown_labels` `int32 [M]`, how many labels of each
        list the schema does not know; `number` `float32 [M]` (NaN where missing); `start` and
        `end` `int32 [M]`, the first and the last token of the answer, both 0, the position of
        [CLS], where there is none, and both -1 where it was cut off with its passage.
      texts: `[M]` the texts as JSON, as they were given; empty for items.
      example_columns: Further columns of each example: `weight` `float32 [M]`, where some
        example of the data set has a weight, and else none.
    """

    ids: Sequence[str]
    groups: Sequence[str]
    contexts: Sequence[str]
    items: np.ndarray
    context: dict[str, np.ndarray]
    reference: dict[str, np.ndarray] | None
    token_columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    targets: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    texts: Sequence[str] = dataclasses.field(default_factory=list)
    example_columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """`int32 [M]`, items of each example."""
        starts = range(0, len(self), _BLOCK)
        blocks = (self.items[start : start + _BLOCK] != PAD_ITEM for start in starts)
        counts = [block.sum(axis=1, dtype=np.int32) for block in blocks]
        return np.concatenate(counts) if counts else np.zeros(0, np.int32)

    @property
    def weights(self) -> np.ndarray | None:
        """What each example counts in the training loss, `float32 [M]`; None for 1 each."""
        return self.example_columns.get("weight")

    @property
    def mean_weight(self) -> float:
        return 1.0 if self.weights is None else float(self.weights.mean(dtype=np.float64))

    @property
    def columns(self) -> dict[str, Any]:
        """The arrays that a step reads, which are placed on the devices."""
        return {
            "items": self.items,
            "context": self.context,
            **self.token_columns,
            **self.targets,
            **self.example_columns,
        }


def evenly_spaced(split: Split, count: int) -> Split:
    """`count` of the examples, at equal distances; all where it is 0 or there are fewer."""
    if not 0 < count < len(split):
        return split
    return selected(split, [number * len(split) // count for number in range(count)])


def selected(split: Split, rows: Sequence[int]) -> Split:
    """The examples of some rows, in their order."""

    def take(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: column[rows] for name, column in table.items()}

    return Split(
        ids=[split.ids[row] for row in rows],
        groups=[split.groups[row] for row in rows],
        contexts=[split.contexts[row] for row in rows],
        items=split.items[rows],
        context=take(split.context),
        reference=take(split.reference) if split.reference else None,
        token_columns=take(split.token_columns),
        targets=take(split.targets),
        texts=[split.texts[row] for row in rows] if len(split.texts) else [],
        example_columns=take(split.example_columns),
    )


def joined(parts: list[Split]) -> Split:
    """The examples of all parts; the reference only where every part has one."""

    def join(name: str) -> dict[str, np.ndarray]:
        tables = [getattr(part, name) for part in parts]
        return {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}

    return Split(
        ids=[text for part in parts for text in part.ids],
        groups=[text for part in parts for text in part.groups],
        contexts=[text for part in parts for text in part.contexts],
        items=np.concatenate([part.items for part in parts]),
        reference=join("reference") if all(part.reference for part in parts) else None,
        context=join("context"),
        token_columns=join("token_columns"),
        targets=join("targets"),
        texts=[text for part in parts for text in part.texts],
        example_columns=join("example_columns"),
    )


def location(prepared: pathlib.Path, split: str, schema: Schema) -> pathlib.Path:
    """The file of a split encoded by a schema; another one once the records change."""
    parts = [FORMAT, schema_file.text(schema)]
    for path in sorted(prepared.glob("*.array_record*")):
        status = path.stat()
        parts.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    key = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    return prepared / "columns" / f"{split}-{key}.arrow"


def read(path: pathlib.Path) -> Split | None:
    """The split, its arrays read-only, or None where the file is missing or damaged."""
    try:
        content = pyarrow.memory_map(str(path)).read_buffer()
    except OSError:
        return None  # Missing, or another user's.
    body = content.slice(0, max(len(content) - _CHECKSUM, 0))
    if _checksum(body) != bytes(content.slice(len(body))):
        errors.warn(f"{path}: damaged; the records are read again")
        return None
    table = pyarrow.ipc.open_stream(body).read_all()

    def arrays(part: str) -> dict[str, np.ndarray]:
        """The columns of a part, whose stored names begin with the part's name and a slash."""
        start = f"{part}/"
        return {
            name.removeprefix(start): _to_numpy(table.column(name))
            for name in table.column_names
            if name.startswith(start)
        }

    def strings(name: str) -> Sequence[str]:
        return Texts(table.column(name)) if name in table.column_names else []

    return Split(
        ids=strings("ids"),
        groups=strings("groups"),
        contexts=strings("contexts"),
        items=_to_numpy(table.column("items")),
        reference=arrays("reference") or None,
        texts=strings("texts"),
        context=arrays("context"),
        token_columns=arrays("token_columns"),
        targets=arrays("targets"),
        example_columns=arrays("example_columns"),
    )


def write(path: pathlib.Path, blocks: Iterable[Split]) -> bool:
    """Writes a split, given block by block, whole or not at all; returns whether it could.

    Memory holds one block. A full disk, or a directory that may not be written to, means that
    there is no cache.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        with ColumnScratch(path.parent) as scratch:
            complete = True  # The reference is kept only where every block has one.
            for block in blocks:
                complete &= block.reference is not None
                _append(scratch, block)
            batch = scratch.batch("" if complete else "reference/")
            files.replace(path, lambda temporary: _write_stream(temporary, batch))
    except OSError:
        return False
    return True


def _append(scratch: ColumnScratch, block: Split) -> None:
    for name in _TEXTS:
        scratch.add_texts(name, list(getattr(block, name)))
    if len(block.texts):
        scratch.add_texts("texts", list(block.texts))
    scratch.add_array("items", block.items)
    for part in (*_TABLES, "reference"):
        for name, rows in (getattr(block, part) or {}).items():
            scratch.add_array(f"{part}/{name}", rows)


def _write_stream(path: pathlib.Path, batch: pyarrow.RecordBatch) -> None:
    with pyarrow.ipc.new_stream(str(path), batch.schema) as stream:
        stream.write_batch(batch)
    checksum = _checksum(pyarrow.memory_map(str(path)).read_buffer())
    with path.open("ab") as file:
        file.write(checksum)


def _checksum(content: pyarrow.Buffer) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM, "big")


def _to_numpy(column: pyarrow.ChunkedArray) -> np.ndarray:
    """`[M, K]` from a list of K numbers an example, or `[M]`, in the file's own memory."""
    (chunk,) = column.chunks
    if not pyarrow.types.is_fixed_size_list(chunk.type):
        return chunk.to_numpy()
    return chunk.flatten().to_numpy().reshape(len(chunk), chunk.type.list_size)
