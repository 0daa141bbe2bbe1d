"""Files written whole or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Callable
from typing import Any


def write_text(path: pathlib.Path, text: str) -> None:
    """Replaces a file by a text, as UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: pathlib.Path, data: bytes) -> None:
    """Replaces a file."""
    replace(path, lambda temporary: temporary.write_bytes(data))


def replace(path: pathlib.Path, write_to: Callable[[pathlib.Path], Any]) -> None:
    """Has a file written beside `path`, then moves it there.

    Raises:
      OSError: the disk is full, say; it names `path`, and what was there stays as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_to(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)
        with contextlib.suppress(OSError):  # On a read-only disk there is nothing to remove.
            temporary.unlink(missing_ok=True)
        raise
