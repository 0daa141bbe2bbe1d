"""Means over seeds, paired differences, and when a variant may be called better.

Legend: Q questions, G groups, K columns.
"""

import dataclasses
import itertools

import numpy as np

from cbert.evaluation import metrics
from cbert.report.query_table import METRICS
from cbert.report.report_data import Study, Variant

DRAWS = 10_000
# Nearer to zero than this is zero: of recall many draws are, but for how sums are rounded.
ROUNDING = 1e-12
# +1 where more is better.
DIRECTION = {name: -1 if name == "cross_entropy" else 1 for name in METRICS}
SEEDS, GROUPS = "seeds", "groups"


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean, its standard error where there is one, and over what: `seeds` or `groups`."""

    mean: float
    error: float | None
    over: str
    count: int


def over_seeds(values: list[float]) -> Mean:
    """The standard error is s / sqrt(n), s with n - 1; a single seed has none."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Mean(float(np.mean(values)), error, SEEDS, len(values))


def over_groups(values: np.ndarray, groups: np.ndarray) -> Mean:
    """See `metrics.mean_and_error`."""
    mean, error = metrics.mean_and_error(values, groups)
    return Mean(mean, error, GROUPS, len(np.unique(groups)))


def results(study: Study) -> dict[str, dict[str, Mean]]:
    """Variant or control to metric to its mean: over seeds, and for controls over groups."""
    found = {
        label: {
            name: over_seeds([float(values[name].mean()) for values in variant.values.values()])
            for name in METRICS
        }
        for label, variant in study.variants.items()
    }
    groups = study.asked.groups
    for label, values in study.asked.controls.items():
        found[label] = {name: over_groups(values[name], groups) for name in METRICS}
    return found


def validation(variant: Variant) -> Mean | None:
    """Validation cross-entropy at the best step, where all seeds have one."""
    curves = [run.curve for run in variant.runs.values()]
    return over_seeds([min(curve.values()) for curve in curves]) if all(curves) else None


@dataclasses.dataclass(frozen=True)
class Difference:
    """A metric of one variant minus that of another, on the same questions and seeds.

    Attributes:
      base: Label of the one that is subtracted.
      other: Label of the other.
      metric: One of `METRICS`.
      by_seed: Mean difference of each matching seed.
      mean: Their mean.
      error: Standard error over groups.
      low: Lower end of the bootstrap's 95 % interval, groups drawn with replacement.
      high: Its upper end.
      p: The bootstrap's two-sided p value.
      p_holm: The same with Holm's correction over all pairs of the metric.
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
        """The better variant's label, or None where that cannot be said."""
        sign = better(self.metric, self.low, self.high, list(self.by_seed.values()))
        return {1: self.other, -1: self.base, 0: None}[sign]


def better(metric: str, low: float, high: float, by_seed: list[float]) -> int:
    """1 where the difference is clearly an improvement, -1 clearly the opposite, else 0.

    Clearly: the interval is clear of zero, and every seed's difference has its sign.
    """
    sign = (low > 0) - (high < 0)
    same = all(np.sign(value) == sign for value in by_seed)
    return int(sign) * DIRECTION[metric] if same else 0


def pairs(study: Study) -> list[Difference]:
    """All pairs of variants that share a seed, those with the base first; metric by metric."""
    labels = [study.base, *(label for label in study.variants if label != study.base)]
    chosen = []
    for base, other in itertools.combinations(labels, 2):
        seeds = study.variants[base].values.keys() & study.variants[other].values.keys()
        if seeds:
            chosen.append((base, other, sorted(seeds)))
    columns = [(name, *pair) for name in METRICS for pair in chosen]
    if not columns:
        return []
    sums, counts = _group_sums(study)
    seedwise = [
        {seed: sums[other, seed, name] - sums[base, seed, name] for seed in seeds}
        for name, base, other, seeds in columns
    ]
    stacked = np.stack([np.mean(list(one.values()), axis=0) for one in seedwise], axis=1)
    means = metrics.bootstrap_means(stacked, counts, draws=DRAWS)
    means[np.abs(means) < ROUNDING] = 0.0
    lows, highs = np.percentile(means, [2.5, 97.5], axis=0)
    ps = np.array([p_value(column) for column in means.T])
    if len(counts) < 2:  # A single group tells nothing of others.
        lows[:], highs[:], ps[:] = -np.inf, np.inf, 1.0
    holms = np.concatenate([holm(part) for part in np.split(ps, len(METRICS))])
    return [
        Difference(
            base,
            other,
            name,
            {seed: float(values.sum() / counts.sum()) for seed, values in one.items()},
            *metrics.ratio_and_error(stacked[:, place], counts),
            *(float(part[place]) for part in (lows, highs, ps, holms)),
        )
        for place, ((name, base, other, _), one) in enumerate(
            zip(columns, seedwise, strict=True)
        )
    ]


def _group_sums(study: Study) -> tuple[dict[tuple[str, int, str], np.ndarray], np.ndarray]:
    """(label, seed, metric) to `[G]`, and the questions of each group."""
    groups, found = study.asked.groups, {}
    for label, variant in study.variants.items():
        for seed, values in variant.values.items():
            for name in METRICS:
                found[label, seed, name], counts = metrics.group_sums(values[name], groups)
    return found, counts


def p_value(means: np.ndarray) -> float:
    """Twice the share of draws on the other side of zero, at least 2 / (draws + 1)."""
    beyond = min((means <= 0).sum(), (means >= 0).sum())
    return float(min(1.0, 2 * (beyond + 1) / (len(means) + 1)))


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down correction: the i-th smallest of n times n - i + 1, never falling."""
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(corrected, 1.0)
    return found


def gain(study: Study, label: str) -> np.ndarray | None:
    """Cross-entropy that a variant saves over the base, `[Q]`, averaged over matching seeds."""
    base, other = study.variants[study.base].values, study.variants[label].values
    seeds = sorted(base.keys() & other.keys())
    if not seeds:
        return None
    name = "cross_entropy"
    return np.mean([base[seed][name] - other[seed][name] for seed in seeds], axis=0)
