"""Several runs side by side: one table, and paired differences on the same queries."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from cbert import tasks
from cbert.errors import UserError
from cbert.evaluation import metrics
from cbert.evaluation.evaluation import Evaluation
from cbert.evaluation.feature_importance import DROPPED, PERMUTED, PERTURBATIONS
from cbert.evaluation.measured import MISFITS, Measured, measure
from cbert.schema import Schema
from cbert.tasks import likeness
from cbert.tasks.metric import Metric
from cbert.text_table import align, numbers
from cbert.training import workdir as workdir_lib
from cbert.training.evaluations import MODEL

# Gaps of the data train a feature to be missing, too, so "not trained" would not be true.
_NOT_DROPPED = "dropped is not measured, because the run's train.context_dropout is 0"


def format_results(results: dict[str, dict[str, Any]], metrics: Sequence[Metric]) -> str:
    """A table of a task's metrics with their standard errors, one row for each name."""
    rows = [["", *(metric.title for metric in metrics)]]
    for name, summary in results.items():
        rows.append([name, *(cell(metric, summary) for metric in metrics)])
    return align(rows)


def format_slices(slices: dict[str, Any], title: str, metrics: Sequence[Metric]) -> str:
    """A table of a task's metrics by slice, with the number of queries in each."""
    rows = [[title, "queries", *(metric.title for metric in metrics)]]
    for label, summary in slices.items():
        cells = (cell(metric, summary) for metric in metrics)
        rows.append([label, f"{summary['queries']:,}", *cells])
    return align(rows)


def format_feature_importance(importance: dict[str, Any], metric: Metric) -> str:
    """A table of `feature_importance.measure`, the most important feature first.

    A line below it says why nothing was dropped, if nothing was.
    """
    rows = [[f"{metric.worsening} in {metric.heading}", *PERTURBATIONS]]
    for name in sorted(importance, key=lambda name: -importance[name][PERMUTED]["mean"]):
        measured = [importance[name][perturbation] for perturbation in PERTURBATIONS]
        cells = [
            plus_minus(one["mean"], one["standard_error"], sign="+") if one else "not measured"
            for one in measured
        ]
        rows.append([name, *cells])
    if all(measured[DROPPED] for measured in importance.values()):
        return align(rows)
    return f"{align(rows)}\n{_NOT_DROPPED}"


def cell(metric: Metric, summary: dict[str, Any], sign: str = "") -> str:
    """A metric's mean and standard error as a table shows them; empty where there is none."""
    if metric.name not in summary:  # A baseline may not predict all that a model does.
        return ""
    mean, error = summary[metric.name]["mean"], summary[metric.name]["standard_error"]
    return plus_minus(mean, error, metric.scale, metric.digits, sign)


def plus_minus(
    mean: float, error: float | None, scale: float = 1, digits: int = 4, sign: str = ""
) -> str:
    """A mean and its standard error; the mean alone where one group gives no error."""
    if error is None:
        return numbers([scale * mean], digits, sign)[0]
    shown = numbers([scale * mean, scale * error], digits, sign)
    return f"{shown[0]} ± {shown[1].removeprefix(sign)}"


def interval(low: float, high: float, metric: Metric) -> str:
    """An interval of differences in a metric, in brackets; empty where it has no ends."""
    if not np.isfinite(high):
        return ""
    ends = numbers([metric.scale * low, metric.scale * high], metric.digits, "+")
    return f"[{', '.join(ends)}]"


def check_comparable(workdirs: Sequence[str]) -> None:
    """Raises `UserError` for runs of different tasks, items or labels, before any is evaluated.

    A task that extends another with a loss or metrics of its own can be compared with that one.
    """
    runs = [workdir_lib.read(pathlib.Path(one).expanduser()) for one in workdirs]
    classes = [tasks.task_class(config) for config, _ in runs]
    for workdir, task in zip(workdirs, classes, strict=True):
        pair = task, classes[0]
        if not (likeness.measured_alike(*pair) or likeness.asked_alike(*pair)):
            raise UserError(
                f"{workdirs[0]} and {workdir} are of different tasks, {classes[0].name} and "
                f"{task.name}; evaluate them one by one"
            )
    for _, schema in runs:
        _check_items(runs[0][1], schema)
        if not classes[0].masks:
            _check_same("labels", runs[0][1].labels, schema.labels)


def _check_items(schema: Schema, other: Schema) -> None:
    """Refuses two runs that choose among different items."""
    _check_same("vocabularies", schema.items, other.items)


def _check_same(what: str, candidates: Sequence[str], others: Sequence[str]) -> None:
    if set(candidates) != set(others):
        raise UserError(
            f"the runs have different {what}, so that their probabilities are of different "
            "things; compare runs whose data one schema prepared, or evaluate them one by one"
        )


def paired(base: Evaluation, other: Evaluation) -> dict[str, Any]:
    """The deciding metric of `other` minus that of `base`, query by query.

    Returns:
      `mean`, `standard_error` (over groups) and the 95 % interval from `low` to `high`, which
      are None where all queries are of one group. All are conditional on the two trained
      models, and do not carry what another seed would change.

    Raises:
      UserError: the two runs were evaluated on different queries, or their tasks measure
        something else under one name.
    """

    def key(evaluation: Evaluation) -> list[Any]:
        queries = evaluation.queries
        columns = evaluation.task.table(evaluation.split, queries).values()
        listed = [c.tolist() if isinstance(c, np.ndarray) else list(c) for c in columns]
        return [[evaluation.split.ids[row] for row in queries.rows], *listed]

    _check_items(base.schema, other.schema)
    if key(base) != key(other):
        raise UserError(
            f"the runs were evaluated on different queries, of {_asked(base)} and "
            f"{_asked(other)}; compare runs on the same data and split, with the same masking"
        )
    _check_measures(base, other)
    metric = base.task.metrics[0].name
    difference = other.measured[MODEL].values[metric] - base.measured[MODEL].values[metric]
    estimate = metrics.estimate(difference, base.groups, base.queries.weights)
    # JSON has no infinite numbers.
    ends = [float(end) if np.isfinite(end) else None for end in estimate.interval()]
    return {**estimate.summary(), "low": ends[0], "high": ends[1]}


def _asked(evaluation: Evaluation) -> str:
    """The data of an evaluation, and its masking where its task masks something."""
    masking = evaluation.settings["masking"]
    return evaluation.settings["data"] + (f" with masking {masking}" if masking else "")


def _check_measures(base: Evaluation, other: Evaluation) -> None:
    """Refuses two tasks of which one measures something else of the other's predictions."""
    if likeness.measured_alike(type(base.task), type(other.task)):
        return
    own = _every(other.measured[MODEL])
    try:
        values = _every(measure(base.task, other.predictions[MODEL], other.queries))
    except MISFITS:
        values = {}
    common = [name for name in own if name in values]
    for name in [base.task.metrics[0].name, *common]:
        if name not in values or not np.array_equal(values[name], own[name], equal_nan=True):
            raise UserError(
                f"the tasks {base.task.name} and {other.task.name} do not measure the same as "
                f"{name}; evaluate the runs one by one"
            )


def _every(measured: Measured) -> dict[str, Any]:
    """Each metric of every query, and those that are no means over all of them."""
    return {**measured.values, **measured.corpus(np.ones(len(measured.weights)))}


def format_paired(base: str, differences: dict[str, dict[str, Any]], metric: Metric) -> str:
    """A table of `paired` for each run minus the base, in the metric that decides."""
    rows = [[f"minus {base}", metric.heading, "95 % interval over groups, one seed"]]
    for name, difference in differences.items():
        rows.append(
            [
                name,
                cell(metric, {metric.name: difference}, "+"),
                interval(difference["low"], difference["high"], metric)
                if difference["low"] is not None
                else "one group: none",
            ]
        )
    return align(rows)


def share_of_worth(
    cross_entropy: float, without_context: float, optimal: float
) -> float | None:
    """The share of the context's worth that a model has: (o - m) / (o - b).

    It is 1 for the optimum, and negative where a better model would not need the context. It is
    None where the context is worth nothing.

    Args:
      cross_entropy: m, that of the model in nats.
      without_context: o, that of Bayes-optimal without context.
      optimal: b, that of Bayes-optimal.
    """
    worth = without_context - optimal
    return (without_context - cross_entropy) / worth if worth > 0 else None
