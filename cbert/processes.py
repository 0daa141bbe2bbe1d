"""Child processes, and what a process or all of them together may use of the machine.

A child has a command line, prints something, and ends with its parent.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import psutil

from cbert.errors import UserError

try:
    import resource
except ImportError:  # Windows has no such limits.
    resource = None  # type: ignore[assignment]

_PR_SET_PDEATHSIG = 1
# Loaded here, because a child may not load a library between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def command(module: str, flags: Mapping[str, object]) -> tuple[str, ...]:
    """The command line that runs a Python module with `--name=value` for every flag."""
    return (sys.executable, "-m", module, *(f"--{name}={flags[name]}" for name in flags))


def output(
    command: Sequence[str],
    name: str,
    environment: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> str:
    """What a command prints.

    Args:
      command: The command line.
      name: What the command does, for its error.
      environment: Environment variables beside those of this process.
      seconds: The time after which the command is killed, and all that it started; None leaves
        it all it needs.

    Raises:
      UserError: the command failed; the error is the last that it names.
      subprocess.TimeoutExpired: the command was killed.
    """
    with subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            printed, log = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        lines = [line for line in log.splitlines() if line.strip()]
        errors = [line for line in lines if re.search("error: ", line, re.IGNORECASE)]
        [*_, last] = [f"exit code {process.returncode}", *(errors or lines)]
        raise UserError(f"{name}: {last.removeprefix('error: ')}")
    return printed


def devices() -> tuple[str, int]:
    """JAX's backend and the number of its devices.

    Another process asks JAX, because this one would keep the accelerators that it has seen,
    and its children could not use them.
    """
    program = "import jax; print(jax.default_backend(), jax.local_device_count())"
    backend, count = output((sys.executable, "-c", program), "JAX finds no device").split()
    return backend, int(count)


def cores() -> list[int]:
    """The numbers of the CPU cores that this process may use."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def host_memory() -> int:
    """Bytes that this process may use: those of `machine_memory`, or the process's limit."""
    limits = [machine_memory()]
    if resource is not None:
        own, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits += [own] if own != resource.RLIM_INFINITY else []
    return min(limits)


def machine_memory(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Bytes that all processes here may use together: the machine's, or a container's limit.

    Args:
      root: The folder in which Linux shows `proc` and `sys`.
    """
    return min([psutil.virtual_memory().total, *_control_group_limits(root)])


def _control_group_limits(root: pathlib.Path) -> Iterator[int]:
    """The limits of this process's control group and of those that it is in, in bytes."""
    lines = []
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mounted = root / "sys/fs/cgroup" / controllers
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = pathlib.PurePosixPath(path)
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # `max` means no limit.
                yield int((mounted / folder.relative_to("/") / name).read_text("utf-8"))


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
