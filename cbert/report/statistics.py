"""Means over seeds, paired differences, and the rule by which a variant is called better.

Legend: Q queries, G groups, K columns.
"""

import dataclasses
import itertools

import numpy as np

from cbert.evaluation import metrics
from cbert.report.query_table import REPORTED_METRICS
from cbert.report.report_data import ReportData, Variant
from cbert.tasks.ranking import METRICS

DRAWS = 10_000
# Differences of recall are often exactly zero; rounding of the sums leaves less than this.
ROUNDING = 1e-12
# +1 for a metric that is better when it is larger, -1 for one that is better when smaller.
DIRECTION = {metric.name: -1 if metric.best == "min" else 1 for metric in METRICS}
SEEDS, GROUPS = "seeds", "groups"


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean and its standard error.

    Attributes:
      mean: The mean.
      error: The standard error; None where there is a single seed or group.
      over: The unit that the standard error is over, `seeds` or `groups`.
      count: The number of seeds or groups.
    """

    mean: float
    error: float | None
    over: str
    count: int


def over_seeds(values: list[float]) -> Mean:
    """The mean with the standard error s / sqrt(n), where s divides by n - 1."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Mean(float(np.mean(values)), error, SEEDS, len(values))


def over_groups(values: np.ndarray, groups: np.ndarray) -> Mean:
    """The mean with the standard error of `metrics.mean_and_error`."""
    mean, error = metrics.mean_and_error(values, groups)
    return Mean(mean, error, GROUPS, len(np.unique(groups)))


def results(data: ReportData) -> dict[str, dict[str, Mean]]:
    """Variant or baseline to metric to mean; errors of baselines are over groups."""
    means = {
        label: {
            name: over_seeds([float(values[name].mean()) for values in variant.values.values()])
            for name in REPORTED_METRICS
        }
        for label, variant in data.variants.items()
    }
    groups = data.queries.groups
    for label, values in data.queries.baselines.items():
        means[label] = {name: over_groups(values[name], groups) for name in REPORTED_METRICS}
    return means


def validation(variant: Variant) -> Mean | None:
    """Validation cross-entropy at the best step; None where a seed has no validation rows."""
    curves = [run.curve for run in variant.runs.values()]
    return over_seeds([min(curve.values()) for curve in curves]) if all(curves) else None


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference in a metric between two variants, on the same queries and seeds.

    Attributes:
      base: The label of the variant that is subtracted.
      other: The label of the variant from which it is subtracted.
      metric: One of `REPORTED_METRICS`.
      by_seed: The mean difference of each seed that both variants have.
      mean: The mean over those seeds.
      error: The standard error over groups.
      low: The lower end of the bootstrap's 95 % interval (groups are drawn with replacement).
      high: The upper end of the same interval.
      p: The bootstrap's two-sided p value.
      p_holm: The p value with Holm's correction over all pairs of the metric.
    """

    base: str
    other: str
    metric: str
    by_seed: dict[int, float]
    mean: float
    error: float | None
    low: float
    high: float
    p: float
    p_holm: float

    @property
    def better(self) -> str | None:
        """The label of the better variant; None where neither is clearly better."""
        sign = better(self.metric, self.low, self.high, list(self.by_seed.values()))
        return {1: self.other, -1: self.base, 0: None}[sign]


def better(metric: str, low: float, high: float, by_seed: list[float]) -> int:
    """1 where the difference is clearly an improvement, -1 where it is clearly the opposite.

    It is clear when the interval excludes zero and every seed's difference has the same sign.
    Otherwise the result is 0.
    """
    sign = (low > 0) - (high < 0)
    same = all(np.sign(value) == sign for value in by_seed)
    return int(sign) * DIRECTION[metric] if same else 0


def pairs(data: ReportData) -> list[Difference]:
    """The differences of all pairs of variants that share a seed, metric by metric.

    The pairs with the base variant come first.
    """
    labels = [data.base, *(label for label in data.variants if label != data.base)]
    chosen = []
    for base, other in itertools.combinations(labels, 2):
        seeds = data.variants[base].values.keys() & data.variants[other].values.keys()
        if seeds:
            chosen.append((base, other, sorted(seeds)))
    columns = [(name, *pair) for name in REPORTED_METRICS for pair in chosen]
    if not columns:
        return []
    sums, counts = _group_sums(data)
    seedwise = [
        {seed: sums[other, seed, name] - sums[base, seed, name] for seed in seeds}
        for name, base, other, seeds in columns
    ]
    stacked = np.stack([np.mean(list(one.values()), axis=0) for one in seedwise], axis=1)
    means = metrics.bootstrap_means(stacked, counts, draws=DRAWS)
    means[np.abs(means) < ROUNDING] = 0.0
    lows, highs = np.percentile(means, [2.5, 97.5], axis=0)
    ps = np.array([p_value(draws) for draws in means.T])
    if len(counts) < 2:  # A single group says nothing about other groups.
        lows[:], highs[:], ps[:] = -np.inf, np.inf, 1.0
    holms = np.concatenate([holm(part) for part in np.split(ps, len(REPORTED_METRICS))])
    return [
        Difference(
            base,
            other,
            name,
            {seed: float(values.sum() / counts.sum()) for seed, values in one.items()},
            *metrics.ratio_and_error(stacked[:, column], counts),
            *(float(part[column]) for part in (lows, highs, ps, holms)),
        )
        for column, ((name, base, other, _), one) in enumerate(
            zip(columns, seedwise, strict=True)
        )
    ]


def _group_sums(data: ReportData) -> tuple[dict[tuple[str, int, str], np.ndarray], np.ndarray]:
    """(label, seed, metric) to sums `[G]`, and the number of queries of each group `[G]`."""
    groups, sums = data.queries.groups, {}
    for label, variant in data.variants.items():
        for seed, values in variant.values.items():
            for name in REPORTED_METRICS:
                sums[label, seed, name], counts = metrics.group_sums(values[name], groups)
    return sums, counts


def p_value(means: np.ndarray) -> float:
    """Twice the fraction of draws beyond zero, at least 2 / (draws + 1) and at most 1."""
    beyond = min((means <= 0).sum(), (means >= 0).sum())
    return float(min(1.0, 2 * (beyond + 1) / (len(means) + 1)))


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down correction: the i-th smallest of n values times n - i + 1, monotone."""
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    restored = np.empty(len(p))
    restored[order] = np.minimum(corrected, 1.0)
    return restored


def gain(data: ReportData, label: str) -> np.ndarray | None:
    """The base's cross-entropy minus the variant's, `[Q]`, averaged over the seeds of both.

    None where the two share no seed.
    """
    base, other = data.variants[data.base].values, data.variants[label].values
    seeds = sorted(base.keys() & other.keys())
    if not seeds:
        return None
    name = "cross_entropy"
    return np.mean([base[seed][name] - other[seed][name] for seed in seeds], axis=0)
