"""A split as columns in memory, and their cache beside prepared data.

The cache is one Arrow stream a split and schema, which is mapped into memory when it is read,
and at its end a checksum, which Arrow has not. It may be deleted at any time.
"""

import dataclasses
import functools
import hashlib
import pathlib
import zlib
from typing import Any

import numpy as np
import pyarrow

from cbert import errors, files
from cbert.errors import UserError
from cbert.schema import PAD_ITEM, Schema, schema_file

FORMAT = "2"
_TEXTS = ("ids", "groups", "contexts")
_CHECKSUM = 4  # Bytes, CRC-32 of all before them.


@dataclasses.dataclass(frozen=True)
class Split:
    """One split, encoded by a schema. M examples of at most L items.

    Attributes:
      ids: `[M]` strings.
      groups: `[M]` strings.
      contexts: `[M]` the contexts as JSON text, as they were given.
      items: `int32 [M, L]`, codes of the schema, padded at the end.
      context: Feature name to its coded column, see `Feature.encode`.
      reference: `log_probability` and `rank`, each `float32 [M, L]`, or None.
    """

    ids: list[str]
    groups: list[str]
    contexts: list[str]
    items: np.ndarray
    context: dict[str, np.ndarray]
    reference: dict[str, np.ndarray] | None

    def __len__(self) -> int:
        return len(self.items)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """`int32 [M]`, items of each example."""
        return (self.items != PAD_ITEM).sum(axis=1).astype(np.int32)

    @property
    def columns(self) -> dict[str, Any]:
        """What a step reads: the arrays that are placed on the devices."""
        return {"items": self.items, "context": self.context}


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
        context=join("context"),
        reference=join("reference") if all(part.reference for part in parts) else None,
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
        """The columns of a part, named by what follows its name and a slash."""
        start = f"{part}/"
        return {
            name.removeprefix(start): _to_numpy(table.column(name))
            for name in table.column_names
            if name.startswith(start)
        }

    texts = {name: table.column(name).to_pylist() for name in _TEXTS}
    return Split(
        **texts,
        items=_to_numpy(table.column("items")),
        context=arrays("context"),
        reference=arrays("reference") or None,
    )


def write(path: pathlib.Path, split: Split) -> None:
    """Writes the file whole or not at all; where that is impossible there is no cache."""
    columns = {name: pyarrow.array(getattr(split, name), "large_string") for name in _TEXTS}
    columns["items"] = _to_arrow(split.items)
    for part in ("context", "reference"):
        for name, array in (getattr(split, part) or {}).items():
            columns[f"{part}/{name}"] = _to_arrow(array)
    batch = pyarrow.RecordBatch.from_pydict(columns)
    try:
        path.parent.mkdir(exist_ok=True)
        files.replace(path, lambda temporary: _write_stream(temporary, batch))
    except (OSError, UserError):
        pass  # A full disk or a directory that may not be written to.


def _write_stream(path: pathlib.Path, batch: pyarrow.RecordBatch) -> None:
    with pyarrow.ipc.new_stream(str(path), batch.schema) as stream:
        stream.write_batch(batch)
    checksum = _checksum(pyarrow.memory_map(str(path)).read_buffer())
    with path.open("ab") as file:
        file.write(checksum)


def _checksum(content: pyarrow.Buffer) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM, "big")


def _to_arrow(array: np.ndarray) -> pyarrow.Array:
    """`[M, K]` as a list of K numbers for each example."""
    flat = pyarrow.array(array.reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1])


def _to_numpy(column: pyarrow.ChunkedArray) -> np.ndarray:
    """The array of `_to_arrow`, in the file's own memory."""
    (chunk,) = column.chunks
    return chunk.flatten().to_numpy().reshape(len(chunk), chunk.type.list_size)
