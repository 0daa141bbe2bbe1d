"""The progress of each run of a sweep, read from its directory."""

import dataclasses
import pathlib
from collections.abc import Sequence

from cbert.data.records import TRAIN
from cbert.text_table import align
from cbert.training import evaluations, workdir, writer

WAITING, TRAINING, EVALUATING = "waiting", "training", "evaluating"
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"


@dataclasses.dataclass
class State:
    """The progress of one run.

    Attributes:
      name: The run's name.
      phase: One of the words above.
      steps: The steps to take.
      step: The step of the last row that training wrote, 0 before the first row.
      loss: The loss of that row, None before the first row.
      rate: Steps per second since this sweep saw the run take steps, None if not known.
      left: Seconds left, None if not known.
    """

    name: str
    phase: str
    steps: int
    step: int = 0
    loss: float | None = None
    rate: float | None = None
    left: float | None = None


def is_finished(path: pathlib.Path, split: str, importance: bool = False) -> bool:
    """Returns whether a run is trained to its end, and its best step evaluated on a split.

    With `importance`, the evaluation has the importance of features, too.
    """
    trained, evaluation = workdir.finished(path), evaluations.read(path, split)
    if trained is None or evaluation is None:
        return False
    if not evaluations.path(path, split).with_suffix(".parquet").exists():
        return False  # Reports need it.
    measured = "feature_importance" in evaluation or not importance
    return measured and evaluation.get("step") == trained.get("best_step")


def progress(path: pathlib.Path) -> tuple[int, float | None]:
    """The step and the loss of the last row that training wrote."""
    rows = [row for row in writer.read(path / workdir.METRICS) if row.get("split") == TRAIN]
    return (rows[-1]["step"], rows[-1].get("loss")) if rows else (0, None)


def table(states: Sequence[State]) -> str:
    """A line for each run: its name, phase, step, loss, rate and time left."""
    rows = [["run", "state", "step", "loss", "steps/s", "left"]]
    for state in states:
        rows.append(
            [
                state.name,
                state.phase,
                f"{state.step:,}/{state.steps:,}" if state.step else "",
                "" if state.loss is None else f"{state.loss:.4f}",
                "" if state.rate is None else f"{state.rate:.1f}",
                "" if state.left is None else duration(state.left),
            ]
        )
    return align(rows)


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds: `1:02:03`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
