"""Files read with care, and written whole or not at all."""

import contextlib
import errno
import glob
import io
import json
import os
import pathlib
import re
import stat
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from cbert.errors import UserError

try:
    import fcntl
except ImportError:  # Windows lacks it, so nothing is locked there.
    fcntl = None  # type: ignore[assignment]

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")  # Of an address, as in `gs://bucket/run`.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def check_writable(directory: pathlib.Path) -> None:
    """Checks that files can be made in a directory, or where it would be made.

    Raises:
      OSError: none can; it names the directory.
      UserError: a file, or a link to nothing, is in the place of the directory, or of one
        above it; or it is the address of a store, such as `gs://bucket/run`.
    """
    refuse_address(directory)
    existing = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    if not existing.is_dir():
        above = "" if existing == directory else f"{directory} cannot be made: "
        raise UserError(f"{above}{existing} is not a directory; choose another path")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        error.filename = str(directory)
        raise


def refuse_address(path: pathlib.Path) -> None:
    """Raises `UserError` where a path would make a directory called `gs:` or the like."""
    for above in path.parents:
        if _SCHEME.fullmatch(above.name) and not above.exists():
            raise UserError(
                f"{above.name}//{path.relative_to(above)} is an address, and cbert writes to "
                "file systems alone; give a path, such as one where the store is mounted"
            )


def read_text(path: pathlib.Path) -> str:
    """A regular file's text, as UTF-8.

    Raises:
      OSError: the file cannot be read.
      UserError: `path` is a pipe or a device, say, which could keep its reader waiting.
    """
    with os.fdopen(opened_regular(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read()


def read_object(path: pathlib.Path) -> dict[str, Any] | None:
    """The object in a file of JSON; None where it is absent, cannot be read or holds none."""
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def opened_regular(path: pathlib.Path, flags: int) -> int:
    """Opens a regular file, without waiting for the other end of a pipe."""
    file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError(f"{path} is not a file; give another path")
    return file


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
    target = path.resolve()  # The target of a link is replaced, and the link stays.
    if path.exists() and not path.is_file():  # `path`, as a pipe in /proc resolves to nothing.
        raise UserError(f"{path} is not a file; give another path")
    temporary = None
    try:
        remove_left_by_kills(target.parent.glob(f"{glob.escape(target.name)}.*.tmp"))
        with own_file(target) as owned:
            temporary = pathlib.Path(owned.name)
            write_to(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)
        if temporary:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise


def own_file(target: pathlib.Path) -> io.BufferedWriter:
    """A new file beside `target`, named after this process, of which others may have the id.

    Until it is closed it has a lock, a sign of life by which no other process removes it.
    """
    number = 0
    while True:
        path = target.with_name(f"{target.name}.{os.getpid()}{number or ''}.tmp")
        try:
            owned = path.open("xb")
        except FileExistsError:
            number += 1
            continue
        if try_lock(owned.fileno()) and path.exists():
            return owned
        owned.close()  # Another process took it for a killed one's before it had its lock.


def try_lock(file: int) -> bool:
    """Takes a lock that lasts until the file is closed; False where another process has it.

    Where the file system has no locks, nobody holds one.
    """
    try:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def remove_left_by_kills(paths: Iterable[pathlib.Path]) -> None:
    """Removes those temporary files of `replace` whose writers ended before they renamed them.

    A writer holds a lock on its file, wherever it runs, so a file that is being written stays.
    """
    for path in paths:
        if not path.stem.rpartition(".")[2].isdecimal():  # It is named after no process.
            continue
        with contextlib.suppress(OSError), path.open("rb") as file:
            if fcntl and try_lock(file.fileno()):
                path.unlink()
