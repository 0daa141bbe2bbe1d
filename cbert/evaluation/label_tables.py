"""Tables of labels, at a terminal and as CSV: their F1, and which is taken for which.

Legend: T labels.
"""

import pathlib
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv

from cbert import files
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.metric import Metric
from cbert.text_table import align
from cbert.training.workdir import EVALUATIONS

MOST_LABELS, MOST_CONFUSIONS = 20, 10  # So many are printed; the files have all.
METRICS = (
    Metric("precision", "max", "precision", percent=True),
    Metric("recall", "max", "recall", percent=True),
    Metric("f1", "max", "F1", percent=True),
)


def values(counts: LabelCounts) -> dict[str, np.ndarray]:
    """Each of `METRICS` of every label, `float64 [T]`."""
    return {metric.name: getattr(counts, metric.name) for metric in METRICS}


def format_labels(counts: LabelCounts, name: str) -> str:
    """The most frequent labels, and confusions of single labels where there are any.

    Args:
      counts: The counts.
      name: The name of the evaluation's files, which have all.
    """
    rows = [["label", *(metric.title for metric in METRICS), "support"]]
    for label, support, *measured in zip(
        counts.names, counts.support, *values(counts).values(), strict=True
    ):
        rows.append([label, *(f"{100 * value:.2f}" for value in measured), f"{support:,}"])
    text = _first(rows, MOST_LABELS, "labels", name)
    if counts.confusions:
        rows = [["label", "prediction", "queries"]]
        rows += [[*pair, f"{count:,}"] for pair, count in counts.confusions.items()]
        text += "\n\n" + _first(rows, MOST_CONFUSIONS, "confusions", name)
    return text


def _first(rows: list[list[str]], most: int, what: str, name: str) -> str:
    """A table of the first rows, below the head, and how many more there are."""
    table, more = align(rows[: most + 1]), len(rows) - 1 - most
    return f"{table}\nand {more:,} more, in {_path(name, what)}" if more > 0 else table


def _path(name: str, what: str) -> pathlib.PurePosixPath:
    """The file of the labels or confusions, from the run's directory."""
    return pathlib.PurePosixPath(EVALUATIONS, f"{name}-{what}.csv")


def write(counts: LabelCounts, workdir: pathlib.Path, name: str) -> None:
    """Writes `eval/<name>-labels.csv` and, of single labels, `eval/<name>-confusions.csv`."""
    labels = {"label": _strings(counts.names), **values(counts)}
    labels |= {"support": counts.support, "predicted": counts.predicted}
    _write(workdir / _path(name, "labels"), labels)
    if counts.confusions is not None:
        label, prediction = ([pair[n] for pair in counts.confusions] for n in (0, 1))
        queries = pyarrow.array([*counts.confusions.values()], pyarrow.int64())
        confusions = {"label": _strings(label), "prediction": _strings(prediction)}
        _write(workdir / _path(name, "confusions"), {**confusions, "queries": queries})


def _strings(texts: Any) -> pyarrow.Array:
    return pyarrow.array(texts, pyarrow.string())  # Also where there are none.


def _write(path: pathlib.Path, columns: dict[str, Any]) -> None:
    table = pyarrow.table(columns)
    files.replace(path, lambda temporary: pyarrow.csv.write_csv(table, temporary))
