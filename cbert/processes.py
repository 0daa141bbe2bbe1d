"""Child processes, and what a process or all of them together may use of the machine.

A child has a command line, prints something, and ends with its parent.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import psutil

from cbert.errors import UserError

try:
    import resource
except ImportError:  # Windows has no such limits.
    resource = None  # type: ignore[assignment]

# What `bound` runs; 1 is PR_SET_PDEATHSIG, and the parent may have died before it was set.
_BOUND = """
import ctypes, os, signal, sys
parent, cores, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(parent):
    os.kill(os.getpid(), signal.SIGKILL)
if cores:
    os.sched_setaffinity(0, map(int, cores.split(",")))
os.execvp(command[0], command)
"""


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
    wanted = os.environ.get("JAX_PLATFORMS")
    name = "JAX finds no device" + (f" of JAX_PLATFORMS={wanted}" if wanted else "")
    backend, count = output((sys.executable, "-c", program), name).split()
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


def bound(command: Sequence[str], cores: Sequence[int] = ()) -> tuple[str, ...]:
    """The command line that runs a command on these cores, and kills it with this process.

    Linux sends the signal when the thread that started the child ends, so that thread must
    live as long as the child is wanted. Elsewhere this is the command alone. A short program
    prepares the process and becomes the command, because a function that the child calls
    before exec may wait for a lock that one of JAX's threads had.

    Args:
      command: The command line.
      cores: The cores that it may use, all of them where it is empty.
    """
    if sys.platform != "linux":
        return tuple(command)
    numbers = ",".join(map(str, cores))
    return (sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), numbers, *command)
