"""Runs side by side: one table, and paired differences on the same questions."""

from typing import Any

import numpy as np

from cbert.errors import UserError, printable
from cbert.evaluation import feature_importance, metrics
from cbert.evaluation.evaluate import MODEL, OPTIMUM, POPULARITY, Evaluation

HEADS = {
    "cross_entropy": "cross-entropy",
    "recall@1": "r@1 %",
    "recall@5": "r@5 %",
    "recall@250": "r@250 %",
    "mrr": "MRR",
    "ndcg@10": "NDCG@10",
}


def format_results(rows: dict[str, dict[str, Any]]) -> str:
    """A table of metrics with standard errors, a row a name."""
    cells = [["", *HEADS.values()]]
    for name, found in rows.items():
        cells.append([name, *(_cell(metric, found[metric]) for metric in metrics.NAMES)])
    return align(cells)


def format_parts(parts: dict[str, Any], title: str) -> str:
    """A table of metrics by part, with the number of questions."""
    cells = [[title, "questions", *HEADS.values()]]
    for label, found in parts.items():
        row = (_cell(metric, found[metric]) for metric in metrics.NAMES)
        cells.append([label, f"{found['questions']:,}", *row])
    return align(cells)


def format_effects(found: dict[str, Any]) -> str:
    """A table of what each feature is worth, the most first."""
    rows = [["cross-entropy lost", *feature_importance.WAYS]]
    order = sorted(found, key=lambda name: -found[name][feature_importance.SHUFFLED]["mean"])
    for name in order:
        ways = [found[name][way] for way in feature_importance.WAYS]
        cells = [
            plus_minus(way["mean"], way["standard_error"], sign="+") if way else "not trained"
            for way in ways
        ]
        rows.append([name, *cells])
    return align(rows)


def _cell(metric: str, found: dict[str, float | None]) -> str:
    share = metric.startswith("recall")
    scale, digits = (100, 2) if share else (1, 4)
    return plus_minus(found["mean"], found["standard_error"], scale, digits)


def plus_minus(
    mean: float, error: float | None, scale: float = 1, digits: int = 4, sign: str = ""
) -> str:
    """Mean and standard error; a single group has none, and the cell says so."""
    shown = "none" if error is None else f"{scale * error:.{digits}f}"
    return f"{scale * mean:{sign}.{digits}f} ± {shown}"


def align(rows: list[list[str]]) -> str:
    """Rows of cells as columns, printable: the first to the left, the others to the right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def paired(base: Evaluation, other: Evaluation) -> dict[str, float]:
    """Cross-entropy of `other` minus `base`, question by question, in nats.

    Returns:
      mean, standard_error (over groups) and the 95 % interval low, high (groups drawn with
      replacement). All are conditional on the two trained models.

    Raises:
      UserError: the two were not asked the same questions.
    """

    def key(evaluation: Evaluation) -> tuple:
        asked = evaluation.asked
        names = np.array(evaluation.schema.items, object)[asked.items]
        return [evaluation.split.ids[row] for row in asked.rows], asked.places, names

    same = all(np.array_equal(a, b) for a, b in zip(key(base), key(other), strict=True))
    if not same or set(base.schema.items) != set(other.schema.items):
        raise UserError(
            "the runs were not asked the same questions; compare runs on the same data, "
            "split and vocabulary"
        )
    difference = other.values()["cross_entropy"] - base.values()["cross_entropy"]
    mean, error = metrics.mean_and_error(difference, base.groups)
    low, high = metrics.bootstrap_interval(difference, base.groups)
    return {"mean": mean, "standard_error": error, "low": low, "high": high}


def format_paired(names: list[str], evaluations: list[Evaluation]) -> str:
    """Each run minus the first."""
    rows = [[f"minus {names[0]}", "cross-entropy", "95 % interval over groups"]]
    for name, evaluation in zip(names[1:], evaluations[1:], strict=True):
        found = paired(evaluations[0], evaluation)
        rows.append(
            [
                name,
                plus_minus(found["mean"], found["standard_error"], sign="+"),
                f"[{found['low']:+.4f}, {found['high']:+.4f}]",
            ]
        )
    return align(rows)


def share_of_the_way(evaluation: Evaluation) -> float:
    """How much of the way from popularity to the known optimum the model covers."""
    means = {
        name: evaluation.values(name)["cross_entropy"].mean()
        for name in (MODEL, POPULARITY, OPTIMUM)
    }
    return (means[POPULARITY] - means[MODEL]) / (means[POPULARITY] - means[OPTIMUM])
