"""What `experiments.explain` measured of the runs of a sweep, and its table of their state."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from cbert import files
from cbert.errors import UserError
from cbert.evaluation.model_state import PARTS
from cbert.report.report_data import ReportData
from cbert.report.tables import Table
from cbert.training.workdir import EXPLANATIONS

Explained = dict[str, Any]  # What was measured of a run, the content of a file.


def by_variant(
    data: ReportData, name: str, check: Callable[[Explained], object]
) -> dict[str, Explained]:
    """Label to what was measured of the variant's first run that has it, as it was evaluated.

    It is of the same checkpoint and of the same split.

    Args:
      data: The data of the report.
      name: What was measured, as the command's `what`.
      check: Raises an error for a content that lacks what the report shows.

    Raises:
      UserError: a file is damaged.
    """
    by_label: dict[str, Explained] = {}
    for label, variant in data.variants.items():
        for run in variant.runs.values():
            measured = _read(run.path / EXPLANATIONS / f"{name}.json", check)
            if not measured or not run.evaluation:
                continue
            if (measured["step"], measured["split"]) == (run.evaluation["step"], data.split):
                by_label.setdefault(label, measured)
    return by_label


def _read(path: pathlib.Path, check: Callable[[Explained], object]) -> Explained | None:
    if not path.exists():
        return None
    try:
        measured = json.loads(files.read_text(path))
        check(measured)
        int(measured["step"]), str(measured["split"]), int(measured["examples"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged ({error!r}); explain the run again") from None
    return measured


def check_state(measured: Explained) -> None:
    """Raises an error unless the state can be shown."""
    for name in ("rms", "effective_rank", "dead_units"):
        [float(number) for number in measured[name]]
    [float(measured["gradients"].get(part, 0)) for part in PARTS]


def state_table(by_label: dict[str, Explained]) -> Table:
    """A row for each variant; numbers of several blocks stand one after the other."""
    rows = []
    for label, measured in by_label.items():
        norms = measured["gradients"]
        rows.append(
            (
                label,
                ", ".join(f"{rms:.3f}" for rms in measured["rms"]),
                ", ".join(f"{rank:.1f}" for rank in measured["effective_rank"]),
                ", ".join(f"{100 * dead:.0f}" for dead in measured["dead_units"]),
                *(f"{norms[part]:.3g}" if part in norms else "" for part in PARTS),
            )
        )
    return Table(
        "What each block reads of the context: its rms, and its effective rank over examples. "
        "Dead units are those of an update of a global state that are zero for every example. "
        "∇ is the norm of the training loss's gradient in each part. Of each variant the first "
        "run that was measured is shown; what a method does not have is empty.",
        ("", "rms read", "effective rank", "dead units %", *(f"∇ {part}" for part in PARTS)),
        rows,
        words=(1, 2, 3),
    )
