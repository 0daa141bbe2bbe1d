"""The run directories of a sweep, read without loading a model."""

import dataclasses
import pathlib
from typing import Any, NoReturn

import ml_collections

from cbert import tasks
from cbert.data.records import TRAIN, VALIDATION
from cbert.errors import UserError
from cbert.schema import Schema
from cbert.tasks import likeness
from cbert.tasks.base import Task
from cbert.tasks.metric import Metric
from cbert.training import checkpoint, evaluations, workdir, writer
from cbert.training import config as config_lib

REPORT = "report"
# The fields of an evaluation that must be the same for all runs.
SETTINGS = ("data", "split", "masking", "checkpoint", "queries", "skipped", "groups")
# The parts of a schema that must be the same, in words.
_SAME = {
    "items": "vocabularies",
    "counts": "vocabularies",
    "features": "features",
    "target": "targets",
}
_NEEDED = (*SETTINGS, "step", "results")


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """The content of one run directory.

    Attributes:
      name: The directory's name.
      path: The directory.
      config: The run's config.
      schema: The run's schema.
      task: The run's task, which has no parameters here.
      curve: Step to the validation value of the task's first metric.
      training_loss: The mean loss of the last training steps that were logged; None for none.
      finished: Whether training came to its end.
      diverged: The step at which a number was not finite, which ended the run; None for none.
      evaluation: The content of `eval/<split>.json`; None where the run is not evaluated.
    """

    name: str
    path: pathlib.Path
    config: ml_collections.ConfigDict
    schema: Schema
    task: Task
    curve: dict[int, float]
    training_loss: float | None
    finished: bool
    diverged: int | None
    evaluation: dict[str, Any] | None

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def metric(self) -> Metric:
        """The metric that decides which checkpoint is the best."""
        return self.task.metrics[0]

    @property
    def best_step(self) -> int | None:
        """The first step with the best validation value."""
        sign = self.metric.sign
        return min(self.curve, key=lambda step: sign * self.curve[step], default=None)

    @property
    def best(self) -> float | None:
        """The best validation value; None where there is none."""
        return None if self.best_step is None else self.curve[self.best_step]

    def unusable(self, split: str) -> str:
        """The reason why the report cannot use the run; empty where it can."""
        if not self.finished and self.diverged is not None:
            steps = self.config.train.steps
            return f"not finished: it diverged at step {self.diverged} of {steps}"
        if not self.finished:
            last = f"step {max(self.curve)}" if self.curve else "no evaluation yet"
            return f"not finished ({last} of {self.config.train.steps})"
        if self.evaluation is None:
            return f"not evaluated on {split}"
        step, best = self.evaluation["step"], self.best_step
        if self.evaluation["checkpoint"] == checkpoint.BEST and best not in (step, None):
            return f"evaluated at step {step}, but its best is now step {best}"
        return ""


def read_all(
    directory: pathlib.Path, split: str
) -> tuple[list[RunDirectory], list[pathlib.Path]]:
    """The runs in a directory in the order of their names, and its other directories.

    Those of reports, whose names begin with `REPORT`, are neither.

    Raises:
      UserError: the directory holds no run, or a file is damaged.
    """
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; give the directory of a sweep")
    if (directory / workdir.CONFIG).exists():
        raise UserError(
            f"{directory} is the directory of one run; give the one that holds the runs"
        )
    inside = [
        path
        for path in sorted(directory.iterdir())
        if path.is_dir() and not path.name.startswith(".")
    ]
    runs = [read(path, split) for path in inside if (path / workdir.CONFIG).exists()]
    if not runs:
        raise UserError(
            f"{directory} holds no run; give a directory whose directories hold a config.json "
            "each"
        )
    others = [path for path in inside if not (path / workdir.CONFIG).exists()]
    return runs, [path for path in others if path.name.split("-")[0] != REPORT]


def read(path: pathlib.Path, split: str) -> RunDirectory:
    """Reads one run directory; raises `UserError` that names a damaged file."""
    config, schema = workdir.read(path)
    task = tasks.create(config, config_lib.build_model(config, schema), schema)
    metric = task.metrics[0].name
    metrics = path / workdir.METRICS
    try:
        rows = writer.read(metrics)
        curve = {
            int(row["step"]): float(row[metric]) for row in rows if row["split"] == VALIDATION
        }
        trained = [row for row in rows if row["split"] == TRAIN]
        losses = [float(row["loss"]) for row in trained if "loss" in row]
        diverged = [row["step"] for row in rows if row["split"] == workdir.DIVERGED]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{metrics}: damaged ({error!r}); restore the file") from None
    return RunDirectory(
        name=path.name,
        path=path,
        config=config,
        schema=schema,
        task=task,
        curve=curve,
        training_loss=losses[-1] if losses else None,
        finished=workdir.finished(path) is not None,
        diverged=diverged[-1] if diverged else None,
        evaluation=_read_evaluation(path, split),
    )


def _read_evaluation(run: pathlib.Path, split: str) -> dict[str, Any] | None:
    path = evaluations.path(run, split)
    if not path.exists() or not path.with_suffix(".parquet").exists():
        return None
    evaluation = evaluations.read(run, split)
    if evaluation is None:
        raise UserError(f"{path}: damaged, no JSON object; evaluate the run again")
    if absent := [name for name in _NEEDED if name not in evaluation]:
        raise UserError(f"{path}: lacks {absent[0]!r}; evaluate the run again")
    return evaluation


def check_comparable(runs: list[RunDirectory]) -> None:
    """Raises `UserError` that names two runs which cannot be compared."""
    first = runs[0]
    evaluated = [(run, run.evaluation) for run in runs if run.evaluation]
    for run in runs[1:]:
        names = first.config.data.name, run.config.data.name
        if names[0] != names[1]:
            _refuse(first, run, f"were trained on different data, {names[0]} and {names[1]}")
        if not likeness.measured_alike(type(first.task), type(run.task)):
            which = f"{first.task.name} and {run.task.name}"
            _refuse(first, run, f"are of different tasks, {which}")
        for part, what in _SAME.items():
            if getattr(first.schema, part) != getattr(run.schema, part):
                _refuse(first, run, f"have different {what} in their schema.json")
    for run, evaluation in evaluated[1:]:
        for name in SETTINGS:
            values = evaluated[0][1][name], evaluation[name]
            if values[0] != values[1]:
                what = f"were evaluated differently: {name} is {values[0]} and {values[1]}"
                _refuse(evaluated[0][0], run, what)


def _refuse(one: RunDirectory, other: RunDirectory, what: str) -> NoReturn:
    raise UserError(
        f"{one.path} and {other.path} {what}; a report needs runs with the same data, "
        "vocabulary and queries, so make one report for each"
    )
