"""Files written whole or not at all, and directories in which one process works at a time."""

import contextlib
import ctypes
import errno
import glob
import io
import os
import pathlib
import re
import shutil
import socket
import stat
import tempfile
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cbert.errors import UserError

try:
    import fcntl
except ImportError:  # Windows lacks it, so nothing is locked there.
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
WRITING = ".writing-"  # How the directory begins in which another one is written.
_ALIVE = ".lock"  # A file there, locked while the process that writes goes on.
_RENAME_EXCHANGE = 2  # A flag of Linux's renameat2.
_AT_CURRENT_DIRECTORY = -100
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")  # Of an address, as in `gs://bucket/run`.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def check_writable(directory: pathlib.Path) -> None:
    """Checks that files can be made in a directory, or where it would be made.

    Raises:
      OSError: none can; it names the directory.
      UserError: a file, or a link to nothing, is in the place of the directory, or of one
        above it; or it is the address of a store, such as `gs://bucket/run`.
    """
    _refuse_address(directory)
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


def _refuse_address(path: pathlib.Path) -> None:
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
    with os.fdopen(_opened_regular(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read()


def _opened_regular(path: pathlib.Path, flags: int) -> int:
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
    if target.exists() and not target.is_file():
        raise UserError(f"{path} is not a file; give another path")
    temporary = None
    try:
        remove_left_by_kills(target.parent.glob(f"{glob.escape(target.name)}.*.tmp"))
        with _own_file(target) as owned:
            temporary = pathlib.Path(owned.name)
            _try_lock(owned.fileno())  # It is held until the rename, as a sign of life.
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


def _own_file(target: pathlib.Path) -> io.BufferedWriter:
    """A new file beside `target`, named after this process, of which others may have the id."""
    number = 0
    while True:
        try:
            path = target.with_name(f"{target.name}.{os.getpid()}{number or ''}.tmp")
            return path.open("xb")
        except FileExistsError:
            number += 1


def _try_lock(file: int) -> bool:
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
            if fcntl and _try_lock(file.fileno()):
                path.unlink()


def replace_directory(target: pathlib.Path, written: pathlib.Path) -> None:
    """Moves a directory to `target`; where there is one, the two are exchanged in one step.

    Where the file system cannot do that, the old one is moved aside first, and
    `restore_directory` brings it back if the process is killed in between.
    """
    if not target.exists():
        os.rename(written, target)
    elif not _exchanged(target, written):
        aside = _aside(written)
        os.rename(target, aside)
        try:
            os.rename(written, target)
        except BaseException:
            os.rename(aside, target)
            raise


@contextlib.contextmanager
def whole_directory(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory to write into, which takes the place of `target` once it is whole.

    What earlier writers of `target` left when they were killed is removed.
    """
    _refuse_address(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(target)
    with (
        tempfile.TemporaryDirectory(
            prefix=WRITING, dir=target.parent, ignore_cleanup_errors=True
        ) as temporary,
        _own_file(pathlib.Path(temporary) / _ALIVE) as owned,
    ):
        _try_lock(owned.fileno())  # Before it has the name by which others find it.
        written = pathlib.Path(temporary) / target.name
        written.mkdir()
        os.rename(owned.name, written.with_name(_ALIVE))
        yield written
        replace_directory(target, written)


def _remove_unfinished(target: pathlib.Path) -> None:
    """Removes what killed writers of `target` left, once what they had moved aside is back."""
    for left in target.parent.glob(f"{WRITING}*"):
        written = left / target.name
        if not (written.exists() or _aside(written).exists()):
            continue  # It is of another directory.
        with contextlib.suppress(OSError), (left / _ALIVE).open("rb") as file:
            if fcntl and _try_lock(file.fileno()):
                restore_directory(target, written)
                shutil.rmtree(left)


def restore_directory(target: pathlib.Path, written: pathlib.Path) -> None:
    """Brings back what a killed `replace_directory` of the same arguments had moved aside."""
    if _aside(written).exists() and not target.exists():
        os.rename(_aside(written), target)


def _aside(written: pathlib.Path) -> pathlib.Path:
    return written.with_name(f"{written.name}.replaced")


def _exchanged(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Exchanges two paths in one step; returns False where the system cannot do that."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False  # The system is not Linux.
    paths = (_AT_CURRENT_DIRECTORY, os.fsencode(one), _AT_CURRENT_DIRECTORY, os.fsencode(other))
    if not rename(*paths, _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(one))


def _opened_lock(path: pathlib.Path) -> typing.TextIO:
    """Opens or makes a lock file, but never the target of a link."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.fdopen(_opened_regular(path, flags), "r+", encoding="utf-8")
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR):
            raise
        raise UserError(f"{path} is not a file, as a lock must be; remove it") from None


class Lock:
    """Held while a process works in a directory; the system releases it when that ends."""

    def __init__(self, directory: pathlib.Path, name: str, wait: bool = False) -> None:
        """Does not take the lock yet.

        Args:
          directory: The directory to work in.
          name: What a user calls the directory, such as `work directory`.
          wait: Whether to wait for a process that holds the lock, not to refuse.
        """
        self._directory, self._name, self._wait = directory, name, wait

    def __enter__(self) -> "Lock":
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file = _opened_lock(self._directory / LOCK)
        if not _try_lock(self._file.fileno()):
            owner = self._file.read().strip() or "another process"
            in_use = f"{self._directory} is in use by {owner}"
            if not self._wait:
                self._file.close()
                raise UserError(f"{in_use}; wait for it or use another {self._name}")
            print(f"{in_use}; waiting for it to end", flush=True)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
