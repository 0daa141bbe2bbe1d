"""Directories written whole or not at all, and those in which one process works at a time."""

import contextlib
import ctypes
import errno
import os
import pathlib
import shutil
import socket
import tempfile
import typing
from collections.abc import Iterator

from cbert import files
from cbert.errors import UserError

try:
    import fcntl
except ImportError:  # Windows lacks it, so nothing is locked there.
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
_WRITING = ".writing-"  # How the directory begins in which another one is written.
_ALIVE = ".lock"  # A file there, locked while the process that writes goes on.
_RENAME_EXCHANGE = 2  # A flag of Linux's renameat2.
_AT_CURRENT_DIRECTORY = -100


@contextlib.contextmanager
def whole_directory(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory to write into, which takes the place of `target` once it is whole.

    What earlier writers of `target` left when they were killed is removed.
    """
    files.refuse_address(target)
    target = target.resolve()  # The target of a link is replaced, and the link stays.
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(target)
    with (
        tempfile.TemporaryDirectory(
            prefix=_WRITING, dir=target.parent, ignore_cleanup_errors=True
        ) as temporary,
        files.own_file(pathlib.Path(temporary) / _ALIVE) as owned,
    ):
        written = pathlib.Path(temporary) / target.name
        written.mkdir()
        # It is locked before it has the name by which others find it.
        os.rename(owned.name, written.with_name(_ALIVE))
        try:
            yield written
            _replace(target, written)
        finally:
            _restore(target, written)
            _clear(written)


def _replace(target: pathlib.Path, written: pathlib.Path) -> None:
    """Moves a directory to `target`; where there is one, the two are exchanged in one step.

    Where the file system cannot do that, the old one is moved aside first, and
    `_restore` brings it back if the process fails or is killed in between.
    """
    if not target.exists():
        os.rename(written, target)
    elif not _exchanged(target, written):
        os.rename(target, _aside(written))
        os.rename(written, target)


def remove_unfinished(target: pathlib.Path, alone: bool = False) -> None:
    """Removes what killed writers of `target` left, once what they had moved aside is back.

    Args:
      target: What they wrote, or would have.
      alone: Whether the caller has a lock by which no other process can be writing there.
    """
    for left in target.parent.glob(f"{_WRITING}*"):
        if alone or _was_left(left, target):
            _restore(target, left / target.name)
            _clear(left / target.name)
            shutil.rmtree(left, ignore_errors=True)


def _clear(written: pathlib.Path) -> None:
    """Removes what was written, but not yet its lock, by which the next writer knows it."""
    for path in (written, _aside(written)):
        shutil.rmtree(path, ignore_errors=True)


def _was_left(directory: pathlib.Path, target: pathlib.Path) -> bool:
    """Whether a directory is one in which a writer of `target` was killed."""
    own = {_ALIVE, target.name, _aside(target).name}
    try:
        if not own.issuperset(path.name for path in directory.iterdir()):
            return False
        with (directory / _ALIVE).open("rb") as file:
            return fcntl is not None and files.try_lock(file.fileno())
    except OSError:
        return False


def _restore(target: pathlib.Path, written: pathlib.Path) -> None:
    """Brings back what a killed `_replace` of the same arguments had moved aside."""
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
        return os.fdopen(files.opened_regular(path, flags), "r+", encoding="utf-8")
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
        if not files.try_lock(self._file.fileno()):
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
