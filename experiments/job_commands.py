"""What the commands that start many runs share: the runs' own commands, and a table."""

import csv
import io
import pathlib
import re
import signal
import sys
import time
import types
from collections.abc import Sequence
from typing import NoReturn

import ml_collections

from cbert import processes
from cbert.sweep import jobs, points
from cbert.training import config as config_lib

_CONFIGS = ".configs"  # Reports pass over directories whose names begin so.


def keep_configs(config: ml_collections.ConfigDict, todo: Sequence[jobs.Job]) -> None:
    """Writes the config that each job trains with, so that the config file may be edited."""
    for job in todo:
        directory = _config_directory(job.paths)
        directory.mkdir(parents=True, exist_ok=True)
        config_lib.save(job.points[0].apply(config), directory)


def train(group: Sequence[points.Point], paths: Sequence[pathlib.Path]) -> tuple[str, ...]:
    """The command that trains some points, each in its own directory; see `keep_configs`."""
    arguments: dict[str, object] = {"config": _config_directory(paths)}
    if len(group) > 1:
        arguments["seeds"] = ",".join(str(point.overrides[points.SEED]) for point in group)
    # A sweep that was killed may have left a process that still trains in the directory.
    arguments |= {"workdir": _listed(paths), "wait": True, "diagnose": False}
    return processes.command("experiments.train", arguments)


def evaluate(split: str, importance: bool, paths: Sequence[pathlib.Path]) -> tuple[str, ...]:
    """The command that evaluates the runs in some directories."""
    arguments = {"split": split, "feature_importance": importance, "workdir": _listed(paths)}
    return processes.command("experiments.evaluate", arguments)


def _config_directory(paths: Sequence[pathlib.Path]) -> pathlib.Path:
    """Where the config of a job lies until its runs have their own."""
    return paths[0].parent / _CONFIGS / paths[0].name


def _listed(paths: Sequence[pathlib.Path]) -> str:
    """Paths as the value of a flag that is a list, those with commas in quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(paths)
    return line.getvalue()


def end_on_signals() -> None:
    """Has a signal end the command, and with it its runs, which save first.

    Another SIGTERM changes nothing then, as in a run; another Ctrl-C ends all at once.
    """
    # A shell makes a command that it starts with `&` ignore SIGINT.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _end(number: int, frame: types.FrameType | None) -> NoReturn:
    # Commands that start from now on would inherit SIG_IGN, and could not be ended.
    signal.signal(signal.SIGTERM, lambda *_: None)
    raise KeyboardInterrupt


class Shown:
    """Shows a table: redrawn at a terminal, elsewhere line by line.

    There a run has a line when its state changes, and one a minute while it goes on.
    """

    SECONDS = 60.0

    def __init__(self) -> None:
        self._lines, self._time = 0, 0.0
        self._printed: dict[int, list[str]] = {}  # Row to its cells.

    def __call__(self, table: str) -> None:
        if sys.stdout.isatty():
            up = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
            print(up + table, flush=True)
            self._lines = table.count("\n") + 1
            return
        now = time.monotonic()
        due = now - self._time > self.SECONDS
        self._time = now if due else self._time
        for row, line in enumerate(table.splitlines()):
            cells, known = re.split(" {2,}", line), self._printed.get(row, [])
            if cells[1:2] != known[1:2] or (due and cells != known):
                print(line, flush=True)
                self._printed[row] = cells
