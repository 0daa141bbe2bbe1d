"""What a sweep runs: one job trains a point, or the seeds of a variant together."""

import ctypes
import dataclasses
import itertools
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from cbert.sweep.points import SEED, Point
from cbert.training import workdir

LOG = "log.txt"


@dataclasses.dataclass(frozen=True)
class Job:
    """Commands that follow each other in one process's place.

    Attributes:
      points: What it trains.
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
        """What to call it."""
        return ", ".join(point.name for point in self.points)

    @property
    def log(self) -> pathlib.Path:
        """Where its output goes: the first run's log."""
        return self.paths[0] / LOG


def make(
    points: Sequence[Point],
    directory: pathlib.Path,
    config_file: str,
    overrides: Mapping[str, object],
    split: str,
    together: bool,
    feature_importance: bool,
) -> list[Job]:
    """A job for each point, or for each variant where its seeds train together."""
    # Seed by seed: something whole is there early.
    parts = [[point] for point in sorted(points, key=lambda point: point.overrides[SEED])]
    if together:
        parts = [list(same) for _, same in itertools.groupby(points, lambda p: p.variant)]
    jobs = []
    for part in parts:
        paths = tuple(directory / point.name for point in part)
        named = ",".join(map(str, paths))
        fields = {**overrides, **part[0].overrides}
        if len(part) > 1:
            del fields[SEED]
        train = [
            *(sys.executable, "-m", "experiments.train", f"--config={config_file}"),
            *(f"--config.{field}={value}" for field, value in fields.items()),
            f"--workdir={named}",
        ]
        if len(part) > 1:
            train.append(f"--seeds={','.join(str(p.overrides[SEED]) for p in part)}")
        evaluate = (
            *(sys.executable, "-m", "experiments.evaluate"),
            *(["--feature_importance"] if feature_importance else []),
            *(f"--split={split}", f"--workdir={named}"),
        )
        jobs.append(Job(tuple(part), paths, tuple(train), evaluate))
    return jobs


def run(job: Job, environment: Mapping[str, str], cores: Sequence[int] = ()) -> int:
    """Trains, then evaluates; output goes to the log. Returns an exit code.

    A process dies with this one, and its run goes on from its last checkpoint. `cores` are
    those it may use, all by default. A run that was told to stop is not evaluated.
    """
    for path in job.paths:
        path.mkdir(parents=True, exist_ok=True)
    for command in (job.train, job.evaluate):
        if command is job.evaluate and not all(map(workdir.finished, job.paths)):
            return 0
        with job.log.open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
                preexec_fn=lambda: _prepare(cores),
            )
            code = process.wait()
        if code:
            return code
    return 0


def _prepare(cores: Sequence[int]) -> None:
    """In the new process: the cores it may use, and its end with its parent's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if cores:
            os.sched_setaffinity(0, cores)


def tail(path: pathlib.Path, lines: int = 5) -> str:
    """The end of a log, without what would move a terminal's cursor."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(no log)"
    shown = [line.rsplit("\r", 1)[-1] for line in text.splitlines() if line.strip()]
    return "\n".join(
        "".join(c for c in line if c.isprintable())[:300] for line in shown[-lines:]
    )
