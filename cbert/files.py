"""Files written whole or not at all, and directories in which one process works at a time."""

import contextlib
import os
import pathlib
import socket
import types
from collections.abc import Callable
from typing import Any

from cbert.errors import UserError

try:
    import fcntl
except ImportError:  # Not on Windows; directories are not locked there.
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"


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
      UserError: `path` is a device or a directory, say, which no file may replace.
    """
    target = path.resolve()  # A link stays one.
    if target.exists() and not target.is_file():
        raise UserError(f"{path} is not a file; give another path")
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")  # Each process its own.
    try:
        write_to(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)
        with contextlib.suppress(OSError):  # On a read-only disk there is nothing to remove.
            temporary.unlink(missing_ok=True)
        raise


class Lock:
    """Held while a process works in a directory; the system releases it when that ends."""

    def __init__(self, directory: pathlib.Path, flag: str, wait: bool = False) -> None:
        """Does not take the lock yet.

        Args:
          directory: The directory to work in.
          flag: The flag that names another directory.
          wait: Whether to wait for a process that holds the lock, not to refuse.
        """
        self._directory, self._flag, self._wait = directory, flag, wait

    def __enter__(self) -> "Lock":
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file = (self._directory / LOCK).open("a+", encoding="utf-8")
        try:
            if fcntl:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read().strip() or "another process"
            in_use = f"{self._directory} is in use by {owner}"
            if not self._wait:
                self._file.close()
                raise UserError(f"{in_use}; wait for it or use another {self._flag}") from None
            print(f"{in_use}; waiting for it to end", flush=True)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._file.close()
