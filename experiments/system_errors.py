"""What a person can do about an error of the disk, the memory or the devices of a machine."""

import errno
import os
import traceback
from collections.abc import Iterator

from absl import flags

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "a file may not grow that large here; raise the limit",
    errno.EROFS: "the file system is read-only; choose another directory",
    errno.EACCES: "this may not be read or written; change its permissions",
    errno.EPERM: "this may not be read or written; change its permissions",
}


def explain(error: BaseException) -> str | None:
    """One line that says what is wrong and what to do; None for any other error."""
    return _disk_error(error) or _memory_error(error) or _device_error(error)


def _disk_error(error: BaseException) -> str | None:
    """Explains an error of a disk that takes nothing more; None for any other error.

    Libraries in C++ raise errors of their own whose text quotes the system's.
    """
    for cause in _causes(error):
        for number, advice in _ADVICE.items():
            raised = isinstance(cause, OSError) and cause.errno == number
            if raised or os.strerror(number) in str(cause):
                return f"{_path_of(cause)}: {advice}; then run the same command again"
    return None


def _memory_error(error: BaseException) -> str | None:
    """Explains an error of a device or a machine without memory left; else None."""
    for cause in _causes(error):
        if isinstance(cause, MemoryError) or str(cause).startswith("RESOURCE_EXHAUSTED"):
            return f"there is no memory left ({cause}); choose a smaller model or batch"
    return None


def _device_error(error: BaseException) -> str | None:
    """Explains that JAX has none of the devices that are asked for; else None."""
    wanted = os.environ.get("JAX_PLATFORMS")
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if not wanted or not frame.f_code.co_filename.endswith("xla_bridge.py"):
        return None
    reason = f" ({error})" if str(error) else ""
    return (
        f"JAX finds no device of JAX_PLATFORMS={wanted}{reason}; install JAX for it, or unset "
        "the variable"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _path_of(error: BaseException) -> str:
    """Returns the path that an error names, or else where the command writes."""
    if name := getattr(error, "filename", None):
        return str(name)
    given = flags.FLAGS.flag_values_dict()
    names = ("output", "workdir", "data_dir")
    path = next((given[name] for name in names if given.get(name)), os.getcwd())
    return path if isinstance(path, str) else ", ".join(path)
