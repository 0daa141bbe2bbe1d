"""Gains in slices of the queries, and feature importance: where and how the context helps.

Legend: Q queries.
"""

import dataclasses

import numpy as np

from cbert.errors import UserError
from cbert.evaluation import breakdown, metrics
from cbert.evaluation.feature_importance import PERTURBATIONS
from cbert.report import statistics
from cbert.report.report_data import ReportData
from cbert.report.statistics import Mean
from cbert.schema import Feature

# A plot has room for so many values, and a mean needs at least so many queries.
MOST_VALUES, LEAST_QUERIES = 20, 30
MANY_VALUES = 1000  # A feature with more known ones has no few in any split; it takes long.
# The last number of visible items gathers at most this fraction of the queries.
TAIL_FRACTION = 0.02
Importance = dict[str, dict[str, dict[str, Mean]]]


@dataclasses.dataclass(frozen=True)
class Gains:
    """Gains over the base variant in slices of the queries.

    Attributes:
      title: The property by which the queries are sliced.
      queries: Slice to its number of queries.
      gains: Variant to slice to the gain in the deciding metric, whose `error` is half of its
        95 % interval over groups.
    """

    title: str
    queries: dict[str, int]
    gains: dict[str, dict[str, Mean]]


def by_visible_items(data: ReportData) -> Gains | None:
    """One slice for each number of visible items; the largest numbers share one slice.

    None for texts.
    """
    visible = data.queries.visible
    if visible is None:
        return None
    last = int(np.quantile(visible, 1 - TAIL_FRACTION, method="higher"))
    slices = {str(count): visible == count for count in range(visible.min(), last)}
    name = str(last) if visible.max() == last else f"{last}+"
    return _gains(data, "visible items", {**slices, name: visible >= last})


def by_features(data: ReportData) -> dict[str, Gains]:
    """Gains by the slices of every discrete feature that has few of them."""
    features = next(iter(data.variants[data.base].runs.values())).schema.features
    gains = {}
    for feature in features:
        if feature.discrete and feature.value_count <= MANY_VALUES:
            try:
                slices = _by_feature(data, feature)
            except UserError:  # Rare values, which the schema does not know, are too many.
                continue
            if 1 < len(slices) <= MOST_VALUES:
                gains[feature.name] = _gains(data, feature.name, slices)
    return {name: one for name, one in gains.items() if one.queries and one.gains}


def _by_feature(data: ReportData, feature: Feature) -> dict[str, np.ndarray]:
    """Label to `bool [Q]`."""
    slices = breakdown.by_feature(data.queries.contexts, feature)
    return {name: inside[data.queries.examples] for name, inside in slices.items()}


def _gains(data: ReportData, title: str, slices: dict[str, np.ndarray]) -> Gains:
    weights = data.queries.weights
    kept = {
        name: inside
        for name, inside in slices.items()
        if inside.sum() >= LEAST_QUERIES and weights[inside].any()
    }
    gains = {}
    for label in data.variants:
        gain = None if label == data.base else statistics.gain(data, label)
        if gain is not None:
            gains[label] = {
                name: _interval(gain[inside], data.queries.groups[inside], weights[inside])
                for name, inside in kept.items()
            }
    return Gains(title, {name: int(inside.sum()) for name, inside in kept.items()}, gains)


def _interval(gain: np.ndarray, groups: np.ndarray, weights: np.ndarray) -> Mean:
    """The mean with half of its interval, which is wide where a slice has few groups."""
    estimate = metrics.estimate(gain, groups, weights)
    half = float(estimate.interval()[1] - estimate.mean)
    error = half if np.isfinite(half) else None
    return Mean(float(estimate.mean), error, statistics.GROUPS, len(np.unique(groups)))


def feature_importance(data: ReportData) -> Importance:
    """`permuted` and `dropped` to variant to feature to the rise in the deciding metric.

    Errors are over seeds where several were measured, otherwise over groups. A variant that
    reads no context has no rise anywhere and is left out.
    """
    importance: Importance = {}
    for label, variant in data.variants.items():
        evaluations = [run.evaluation or {} for run in variant.runs.values()]
        with_it = [one for one in evaluations if "feature_importance" in one]
        measured = [one["feature_importance"] for one in with_it]
        groups = [one["groups"] for one in with_it]
        for perturbation in PERTURBATIONS:
            features = {
                name: _mean([one[name][perturbation] for one in measured], groups)
                for name in (measured[0] if measured else ())
                if all(one[name][perturbation] for one in measured)
            }
            if any(mean.mean for mean in features.values()):
                importance.setdefault(perturbation, {})[label] = features
    return importance


def _mean(measured: list[dict[str, float]], groups: list[int]) -> Mean:
    """The mean over seeds; a single seed keeps its own error over groups."""
    if len(measured) > 1:
        return statistics.over_seeds([one["mean"] for one in measured])
    return Mean(
        measured[0]["mean"], measured[0]["standard_error"], statistics.GROUPS, groups[0]
    )
