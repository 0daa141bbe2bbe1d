"""Means over seeds, paired differences, and the rule by which a variant is called better.

Legend: Q queries, G groups.
"""

import dataclasses
import itertools

import numpy as np

from cbert.evaluation import intervals, metrics
from cbert.evaluation.intervals import LEVEL
from cbert.evaluation.measured import Measured
from cbert.report.report_data import ReportData, Variant
from cbert.tasks.metric import Metric

# A verdict needs so many seeds: the deviation of fewer is itself hardly known.
LEAST_SEEDS = 5
TOO_FEW = "too few seeds for a verdict"
# Differences of recall are often exactly zero; rounding of the sums leaves less than this part.
ROUNDING = 1e-12
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


def results(data: ReportData) -> dict[str, dict[str, Mean]]:
    """Variant or baseline to metric to mean; errors of baselines are over groups.

    A baseline may lack a metric.
    """
    means = {}
    for label, variant in data.variants.items():
        wholes = [measured.whole() for measured in variant.measured.values()]
        means[label] = {
            metric.name: over_seeds([whole[metric.name] for whole in wholes])
            for metric in data.metrics
        }
    for label, measured in data.queries.baselines.items():
        means[label] = _of_baseline(measured, data)
    return means


def _of_baseline(measured: Measured, data: ReportData) -> dict[str, Mean]:
    groups = data.queries.groups
    known, count = measured.summarize(groups), len(np.unique(groups))
    return {
        metric.name: Mean(one["mean"], one["standard_error"], GROUPS, count)
        for metric in data.metrics
        if (one := known.get(metric.name))
    }


def validation(variant: Variant) -> Mean | None:
    """The deciding metric on the validation split at the best step.

    None where a seed has no validation rows.
    """
    return _over_all_seeds([run.best for run in variant.runs.values()])


def training_loss(variant: Variant) -> Mean | None:
    """The loss in the end of training; None where a seed has no training rows."""
    return _over_all_seeds([run.training_loss for run in variant.runs.values()])


def _over_all_seeds(values: list[float | None]) -> Mean | None:
    """The mean over seeds; None where one of them has no value."""
    known = [value for value in values if value is not None]
    return over_seeds(known) if len(known) == len(values) else None


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference in a metric between two variants, on the same queries and seeds.

    Attributes:
      base: The label of the variant that is subtracted.
      other: The label of the variant from which it is subtracted.
      metric: The metric.
      by_seed: The mean difference of each seed that both variants have.
      mean: The mean over those seeds.
      error: The standard error over seeds and groups, or over groups where there is one seed;
        None where there is one group.
      freedom: Its degrees of freedom.
      low: The lower end of the 95 % interval.
      high: The upper end of the same interval.
      p: The two-sided p value.
      p_level: The p value of the hypothesis that the variants differ by the margin or more
        (two one-sided tests), so that a small one says that they are level; NaN for a metric
        without a margin.
      p_holm: `p` with Holm's correction over all pairs of the metric.
      p_level_holm: `p_level` with the same correction.
    """

    base: str
    other: str
    metric: Metric
    by_seed: dict[int, float]
    mean: float
    error: float | None
    freedom: float
    low: float
    high: float
    p: float
    p_level: float
    p_holm: float = 1.0
    p_level_holm: float = 1.0

    @property
    def is_level(self) -> bool:
        """Whether the two are shown to be closer than the margin."""
        return self.p_level_holm <= LEVEL and len(self.by_seed) >= LEAST_SEEDS

    @property
    def better(self) -> str | None:
        """The label of the variant that is shown to be better; None where neither is."""
        if len(self.by_seed) < LEAST_SEEDS or self.is_level or self.p_holm > LEVEL:
            return None
        return self.other if (self.mean < 0) == (self.metric.best == "min") else self.base

    @property
    def verdict(self) -> str:
        """What the seeds and groups allow to say."""
        if len(self.by_seed) < LEAST_SEEDS:
            return TOO_FEW
        if self.is_level:
            return "level"
        return f"{self.better} better" if self.better else "undecided"


def pairs(data: ReportData) -> list[Difference]:
    """The differences of all pairs of variants that share a seed, metric by metric.

    The pairs with the base variant come first.
    """
    labels = [data.base, *(label for label in data.variants if label != data.base)]
    chosen = []
    for base, other in itertools.combinations(labels, 2):
        of_base, of_other = (data.variants[label].measured for label in (base, other))
        if seeds := sorted(of_base.keys() & of_other.keys()):
            chosen.append((base, other, seeds))
    runs = _measured(data)
    differences = []
    for metric in data.metrics:
        differences += _corrected([_difference(data, metric, pair, runs) for pair in chosen])
    return differences


# (label, seed) to each metric over all queries, and to each group's influence on it, `[G]`.
_Runs = dict[tuple[str, int], tuple[dict[str, float], dict[str, np.ndarray]]]


def _measured(data: ReportData) -> _Runs:
    groups = data.queries.groups
    runs = {}
    for label, variant in data.variants.items():
        for seed, one in variant.measured.items():
            runs[label, seed] = one.whole(), metrics.influence(one.every(), groups)
    return runs


def _difference(
    data: ReportData, metric: Metric, pair: tuple[str, str, list[int]], runs: _Runs
) -> Difference:
    """The difference of one pair in one metric, before Holm's correction."""
    base, other, seeds = pair
    # `[other and base, seeds]`, the latter with groups as a third axis.
    wholes, influences = (
        np.array(
            [[runs[label, seed][n][metric.name] for seed in seeds] for label in (other, base)]
        )
        for n in (0, 1)
    )
    differences = wholes[0] - wholes[1]
    differences[np.abs(differences) < ROUNDING * np.abs(wholes).max(axis=0)] = 0.0
    influence = influences[0] - influences[1]
    estimate = intervals.two_level(differences, influence, data.queries.fractions)
    summary = estimate.summary()
    low, high = map(float, estimate.interval())
    return Difference(
        base=base,
        other=other,
        metric=metric,
        by_seed=dict(zip(seeds, differences.tolist(), strict=True)),
        mean=summary["mean"],
        error=summary["standard_error"],
        freedom=float(estimate.freedom),
        low=low,
        high=high,
        p=float(estimate.p_different()),
        p_level=float(estimate.p_level(data.margin)) if metric == data.metric else np.nan,
    )


def _corrected(differences: list[Difference]) -> list[Difference]:
    """The pairs of one metric with Holm's correction of both p values."""
    p_holm = intervals.holm(np.array([one.p for one in differences]))
    p_level_holm = intervals.holm(np.array([one.p_level for one in differences]))
    return [
        dataclasses.replace(one, p_holm=p, p_level_holm=p_level)
        for one, p, p_level in zip(
            differences, p_holm.tolist(), p_level_holm.tolist(), strict=True
        )
    ]


def gain(data: ReportData, label: str) -> np.ndarray | None:
    """By how much a variant is better than the base in the deciding metric.

    It is `float64 [Q]`, averaged over the seeds of both; None where the two share no seed.
    """
    base, other = data.variants[data.base].measured, data.variants[label].measured
    seeds = sorted(base.keys() & other.keys())
    if not seeds:
        return None
    name, sign = data.metric.name, data.metric.sign
    gains = [sign * (base[seed].values[name] - other[seed].values[name]) for seed in seeds]
    return np.mean(gains, axis=0)
