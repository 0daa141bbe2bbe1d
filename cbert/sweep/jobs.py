"""The jobs of a sweep: each trains and evaluates a point, or all seeds of a variant."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cbert import processes
from cbert.errors import printable
from cbert.sweep.points import SEED, Point
from cbert.training import workdir

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

# Longer logs are read from the end; a traceback of JAX has some ten thousand characters.
_LOG_END = 100_000
_MOST_LINES = 5  # More lines of a log are not shown where it names no error.
_FAILED = "the sweep saw this fail: "  # The last line of the log of a job that failed.


@dataclasses.dataclass(frozen=True)
class Job:
    """Two commands that run one after the other.

    Attributes:
      points: The points that it trains.
      paths: Their directories.
      train: The command that trains them.
      evaluate: The command that evaluates them.
    """

    points: tuple[Point, ...]
    paths: tuple[pathlib.Path, ...]
    train: tuple[str, ...]
    evaluate: tuple[str, ...]

    @property
    def name(self) -> str:
        """The names of its points."""
        return ", ".join(point.name for point in self.points)

    @property
    def log(self) -> pathlib.Path:
        """The file that its output is appended to: the log of its first run."""
        return self.paths[0] / workdir.LOG


Points: TypeAlias = Sequence[Point]
Paths: TypeAlias = Sequence[pathlib.Path]


def make(
    points: Points,
    directory: pathlib.Path,
    vmap_seeds: bool,
    train: Callable[[Points, Paths], tuple[str, ...]],
    evaluate: Callable[[Paths], tuple[str, ...]],
) -> list[Job]:
    """A job for each point, or for each variant where one program trains all its seeds.

    Args:
      points: The points of the sweep.
      directory: The directory that holds a directory for each point.
      vmap_seeds: Whether one program trains all seeds of a variant.
      train: Makes the command that trains some points, each in the directory beside it.
      evaluate: Makes the command that evaluates the runs in some directories.
    """
    # All variants of one seed come first, so that the first complete comparison is early.
    by_seed = sorted(points, key=lambda point: int(point.overrides[SEED]))
    groups = [[point] for point in by_seed]
    if vmap_seeds:
        groups = _programs(points, directory)
    jobs = []
    for group in groups:
        paths = tuple(directory / point.name for point in group)
        jobs.append(Job(tuple(group), paths, train(group, paths), evaluate(paths)))
    return jobs


def _programs(points: Points, directory: pathlib.Path) -> list[list[Point]]:
    """The seeds of each variant that one program trains; finished ones have their own.

    Seeds that have begun go on together where a step is among the last two checkpoints of each.
    Others would take them back by more than a save.
    """
    programs: list[list[Point]] = []
    common: set[int] = set()
    key = None
    for point in points:
        path = directory / point.name
        own = point.variant, workdir.finished(path) is not None
        steps = {*workdir.checkpoint_steps(path / workdir.CHECKPOINTS)[-2:]}
        if own == key and (common & steps or not common | steps):
            programs[-1].append(point)
            common &= steps
        else:
            programs.append([point])
            common, key = steps, own
    return programs


def run(
    job: Job,
    environment: Mapping[str, str],
    cores: Sequence[int] = (),
    started: Callable[[subprocess.Popen], None] = lambda _: None,
) -> str:
    """Trains, then evaluates. Returns why a command failed, an empty text where none did.

    The commands write to the job's log. They are killed when this process dies, and the run
    goes on from its last checkpoint when the job is run again. A run that was asked to stop
    is not evaluated.

    Args:
      job: The job to run.
      environment: Environment variables to set in addition to this process's own.
      cores: The cores that the commands may use, all of them where it is empty.
      started: Called with the process of each command.
    """
    for path in job.paths:
        path.mkdir(parents=True, exist_ok=True)
    for command in (job.train, job.evaluate):
        if command is job.evaluate and not all(map(workdir.finished, job.paths)):
            return ""
        with job.log.open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                processes.bound(command, cores),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
            started(process)
            code = process.wait()
        if code:
            return failure(code, _read(job.log, start))
    return ""


class Requeued:
    """`run` as submitit calls it, which asks it to save before Slurm ends its job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None  # The newest one.

    def __call__(self, job: Job) -> str:
        return run(job, {}, started=self._note)

    def _note(self, process: subprocess.Popen) -> None:
        self._process = process

    def checkpoint(self, job: Job) -> "DelayedSubmission":
        """Has the run save, and returns what the job does when Slurm starts it again."""
        from submitit.helpers import DelayedSubmission  # It belongs to an optional extra.

        if self._process is not None:
            self._process.terminate()
            # This is a signal's handler, and `wait`, which it interrupts, holds a lock.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(Requeued(), job)


def mark_failed(job: Job, why: str) -> None:
    """Ends a job's log with a line that says so, for the sweeps that follow."""
    with contextlib.suppress(OSError), job.log.open("a", encoding="utf-8") as log:
        log.write(f"\n{_FAILED}{why.splitlines()[-1]}\n")


def failed_before(job: Job) -> bool:
    """Whether an earlier sweep saw the job fail, and nothing has run it since."""
    try:
        lines = _read(job.log, 0).splitlines()
    except OSError:
        return False
    return bool(lines) and lines[-1].startswith(_FAILED)


def _read(path: pathlib.Path, start: int) -> str:
    """The text of a log after its first `start` bytes, or the end of that text."""
    with path.open("rb") as log:
        log.seek(max(start, path.stat().st_size - _LOG_END))
        return log.read().decode("utf-8", errors="replace")


def failure(code: int, output: str) -> str:
    """Why a command failed: its own error message, and how the process ended.

    The message is the last `error:` line, or else the exception that ends the last traceback,
    or what stands before Python's report of a crash. Where there is none of these, the last
    lines of the output stand in for it.

    Args:
      code: The exit code, negative for the number of the signal that killed the process.
      output: All that the command has written.
    """
    # A carriage return redraws the line, so only the text after the last one was visible.
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in output.split("\n")]
    lines = [line for line in lines if line]
    message = lines[-_MOST_LINES:]
    for index, line in enumerate(lines):
        if line.startswith("error: "):
            message = [line]
        elif line.startswith("Traceback (most recent call last)"):
            rest = itertools.dropwhile(re.compile(r"\s").match, lines[index + 1 :])
            message = list(rest)[:_MOST_LINES] or message
        elif line.startswith("Fatal Python error: "):  # What C++ said of it stands before it.
            message = lines[max(index - 2, 0) : index + 1]
    ended = f"it ended with exit code {code}"
    if code < 0:
        known = {int(one): one.name for one in signal.Signals}
        ended = f"it was killed by {known.get(-code, f'signal {-code}')}"
    return "\n".join([*(printable(line)[:300] for line in message), ended])
