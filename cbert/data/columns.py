"""A split as columns in memory, and their cache beside prepared data.

The cache is one `.npz` a split and schema: a zip archive, whose CRC-32 of every column is
checked when it is read, and no pickle. It may be deleted at any time.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import struct
import tempfile
import zipfile
import zlib
from typing import Any

import numpy as np

from cbert import errors
from cbert.schema import PAD_ITEM, Schema, schema_file

FORMAT = "1"
_NAMED = ("context", "reference")
_TEXTS = ("ids", "groups", "contexts", *(f"{part} names" for part in _NAMED))
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, MemoryError),
    *(ValueError, KeyError, IndexError, NotImplementedError, RuntimeError),
)


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
    """The examples of all parts; what is known of them only where it is known of all."""

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
    return prepared / "columns" / f"{split}-{key}.npz"


def read(path: pathlib.Path) -> Split | None:
    """The split, or None where the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        texts = {
            name: _to_strings(arrays.pop(name), arrays.pop(f"{name} ends")) for name in _TEXTS
        }
        named = {
            part: {
                name: arrays[f"{part} {place}"]
                for place, name in enumerate(texts.pop(f"{part} names"))
            }
            for part in _NAMED
        }
        return Split(
            **texts,
            items=arrays["items"],
            context=named["context"],
            reference=named["reference"] or None,
        )
    except OSError:
        return None  # Missing, or another user's.
    except _DAMAGED:
        errors.warn(f"{path}: damaged; the records are read again")
        return None


def write(path: pathlib.Path, split: Split) -> None:
    """Writes the file whole or not at all; where that is impossible there is no cache."""
    arrays = {"items": split.items}
    texts = {name: getattr(split, name) for name in ("ids", "groups", "contexts")}
    for part in _NAMED:
        columns = getattr(split, part) or {}
        texts[f"{part} names"] = list(columns)
        # By place: a feature may have any name, a member of an archive may not.
        for place, column in enumerate(columns.values()):
            arrays[f"{part} {place}"] = column
    for name in _TEXTS:
        arrays[name], arrays[f"{name} ends"] = _to_bytes(texts[name])
    try:
        path.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            try:
                np.savez(file, **arrays)
                os.chmod(file.name, path.parent.stat().st_mode & 0o666)
            except BaseException:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)
    except OSError:
        pass  # A full disk or a directory that may not be written to.


def _to_bytes(strings: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """All strings as one `uint8` array, and where each ends."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([len(string) for string in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _to_strings(joined: np.ndarray, ends: np.ndarray) -> list[str]:
    text, starts = joined.tobytes(), [0, *ends.tolist()][:-1]
    return [text[start:end].decode() for start, end in zip(starts, ends.tolist(), strict=True)]
