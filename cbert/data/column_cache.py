"""The columns of a split in a file beside prepared data.

The file is one Arrow stream a split and schema, which is mapped into memory when it is read,
and at its end a checksum, which Arrow has not. It may be deleted at any time.

Legend: M examples, K numbers of an example.
"""

import hashlib
import pathlib
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow

from cbert import errors, files
from cbert.data.column_scratch import ColumnScratch
from cbert.data.columns import Split, Texts
from cbert.schema import Schema, schema_file

FORMAT = "5"
_TEXTS = ("ids", "groups", "contexts")
_TABLES = ("context", "token_columns", "targets", "example_columns")
_CHECKSUM = 4  # Bytes, CRC-32 of all before them.


def location(prepared: pathlib.Path, split: str, schema: Schema) -> pathlib.Path:
    """The file of a split encoded by a schema; another one once the records change."""
    records = [FORMAT]
    for path in sorted(prepared.glob("*.array_record*")):
        status = path.stat()
        records.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    name = f"{split}-{_key(records)}-{_key([schema_file.text(schema)])}.arrow"
    return prepared / "columns" / name


def _key(parts: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


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

    Files of the same split that are of earlier records are removed. Memory holds one block. A
    full disk, or a directory that may not be written to, means that there is no cache.
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
            _remove_outdated(path)
    except OSError:
        return False
    return True


def _remove_outdated(path: pathlib.Path) -> None:
    """Removes the split's files of records that are no more, which nobody reads again."""
    split = path.name.partition("-")[0]
    of_these_records = path.name.rpartition("-")[0]
    for other in path.parent.glob(f"{split}-*.arrow"):
        if other.name.rpartition("-")[0] != of_these_records:
            other.unlink(missing_ok=True)


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
