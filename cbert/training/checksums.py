"""Checksums of a checkpoint's files: they say later that all is as it was written.

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
    """Writes the checksums of a checkpoint that is whole."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    listed = {path.relative_to(folder).as_posix(): _of(path) for path in paths}
    files.write_text(folder / NAME, json.dumps(_with_its_own(listed), indent=1) + "\n")


def verify(folder: pathlib.Path) -> bool:
    """Whether a checkpoint has checksums; raises `DamagedError` where a file differs."""
    try:
        listed = _listed((folder / NAME).read_bytes())
    except FileNotFoundError:
        return False
    except (ValueError, RecursionError):
        raise DamagedError(f"{NAME} is damaged") from None
    for name, written in listed.items():
        found = _found(folder, name)
        if found != written:
            raise DamagedError(f"{name} is {_difference(found, written)}")
    return True


def _listed(text: bytes) -> dict[str, Any]:
    content = json.loads(text)
    listed = content.get("files") if isinstance(content, dict) else None
    if not isinstance(listed, dict) or content != _with_its_own(listed):
        raise ValueError
    return listed


def _found(folder: pathlib.Path, name: str) -> dict[str, Any] | None:
    """A file's checksum, None where it cannot be read from the disk."""
    try:
        return _of(folder / name) if (folder / name).is_file() else None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EIO):
            return None
        raise


def _difference(found: dict[str, Any] | None, written: Any) -> str:
    if found is None:
        return "missing or not readable"
    if isinstance(written, dict) and found["size"] != written.get("size"):
        return f"{found['size']} bytes long instead of {written.get('size')}"
    return "damaged, its SHA-256 is another"


def _of(path: pathlib.Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}


def _with_its_own(listed: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(listed, sort_keys=True)
    return {"files": listed, "sha256": hashlib.sha256(text.encode()).hexdigest()}
