"""What the commands that start many runs share: the runs' own commands, and a table."""

import csv
import io
import pathlib
import sys
import time
from collections.abc import Sequence

from absl import flags
from ml_collections import config_flags

from cbert import processes
from cbert.sweep import points


def train(group: Sequence[points.Point], paths: Sequence[pathlib.Path]) -> tuple[str, ...]:
    """The command that trains some points, each in its own directory."""
    flag = flags.FLAGS["config"]
    fields = {**config_flags.get_override_values(flag), **group[0].overrides}
    arguments = {"config": config_flags.get_config_filename(flag)}
    if len(group) > 1:
        del fields[points.SEED]
        arguments["seeds"] = ",".join(str(point.overrides[points.SEED]) for point in group)
    arguments |= {f"config.{field}": value for field, value in fields.items()}
    # A sweep that was killed may have left a process that still trains in the directory.
    arguments |= {"workdir": _listed(paths), "wait": True, "diagnose": False}
    return processes.command("experiments.train", arguments)


def evaluate(split: str, importance: bool, paths: Sequence[pathlib.Path]) -> tuple[str, ...]:
    """The command that evaluates the runs in some directories."""
    arguments = {"split": split, "feature_importance": importance}
    arguments["workdir"] = _listed(paths)
    return processes.command("experiments.evaluate", arguments)


def _listed(paths: Sequence[pathlib.Path]) -> str:
    """Paths as the value of a flag that is a list, those with commas in quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(paths)
    return line.getvalue()


def interrupt(*_: object) -> None:
    """A signal handler that ends the command, and with it its runs, which save first."""
    raise KeyboardInterrupt


class Shown:
    """Shows a table: redrawn at a terminal, printed anew elsewhere, but seldom."""

    SECONDS = 60.0

    def __init__(self) -> None:
        self._lines, self._time, self._phases = 0, 0.0, ""

    def __call__(self, table: str) -> None:
        if sys.stdout.isatty():
            up = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
            print(up + table, flush=True)
            self._lines = table.count("\n") + 1
            return
        phases = " ".join(line.split()[1] for line in table.splitlines()[1:])
        now = time.monotonic()
        if phases != self._phases or now - self._time > self.SECONDS:
            print(table + "\n", flush=True)
            self._phases, self._time = phases, now
