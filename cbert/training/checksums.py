"""Checksums of a checkpoint's files, which show later whether a file has changed.

`checksums.json` in the checkpoint's directory holds the size and the SHA-256 of every other
file there, and the SHA-256 of that list itself.
"""

import errno
import hashlib
import json
import pathlib
from typing import Any

from cbert import files
from cbert.errors import UserError

NAME = "checksums.json"


class DamagedError(UserError):
    """Names the file that is not as it was written, relative to its checkpoint."""


def write(folder: pathlib.Path) -> None:
    """Writes the checksums of a checkpoint whose files are all written."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    listed = {path.relative_to(folder).as_posix(): _size_and_digest(path) for path in paths}
    files.write_text(folder / NAME, json.dumps(_with_own_checksum(listed), indent=1) + "\n")


def verify(folder: pathlib.Path) -> bool:
    """Returns whether a checkpoint has checksums.

    Raises:
      DamagedError: it has, and a file differs from them.
    """
    try:
        listed = _listed((folder / NAME).read_bytes())
    except FileNotFoundError:
        return False
    except (ValueError, RecursionError):
        raise DamagedError(f"{NAME} is damaged") from None
    for name, written in listed.items():
        current = _current(folder, name)
        if current != written:
            raise DamagedError(f"{name} is {_difference(current, written)}")
    return True


def _listed(text: bytes) -> dict[str, Any]:
    content = json.loads(text)
    listed = content.get("files") if isinstance(content, dict) else None
    if not isinstance(listed, dict) or content != _with_own_checksum(listed):
        raise ValueError
    return listed


def _current(folder: pathlib.Path, name: str) -> dict[str, Any] | None:
    """Size and checksum of a file, None if it cannot be read from the disk."""
    try:
        return _size_and_digest(folder / name) if (folder / name).is_file() else None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EIO):
            return None
        raise


def _difference(current: dict[str, Any] | None, written: Any) -> str:
    if current is None:
        return "missing or not readable"
    if isinstance(written, dict) and current["size"] != written.get("size"):
        return f"{current['size']} bytes long instead of {written.get('size')}"
    return "damaged, its SHA-256 is another"


def _size_and_digest(path: pathlib.Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}


def _with_own_checksum(listed: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(listed, sort_keys=True)
    return {"files": listed, "sha256": hashlib.sha256(text.encode()).hexdigest()}
