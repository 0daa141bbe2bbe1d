"""Child processes: the command line of one, and how it ends with its parent."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping

_PR_SET_PDEATHSIG = 1
# Loaded here, because a child may not load a library between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def command(module: str, flags: Mapping[str, object]) -> tuple[str, ...]:
    """The command line that runs a Python module with `--name=value` for every flag."""
    return (sys.executable, "-m", module, *(f"--{name}={flags[name]}" for name in flags))


def ends_with_parent() -> Callable[[], None]:
    """A function for the child to call before exec: the system then kills it with its parent.

    Linux sends the signal when the thread that started the child ends, so that thread must
    live as long as the child is wanted. Elsewhere the function does nothing.
    """
    parent = os.getpid()

    def call() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != parent:  # The parent died before the call above.
                os.kill(os.getpid(), signal.SIGKILL)

    return call
