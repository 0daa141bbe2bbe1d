"""Means over seeds, paired differences, and the rule by which a variant is called better.

Legend: Q queries, G groups, K columns.
"""

import dataclasses
import itertools

import numpy as np

from cbert.evaluation import metrics
from cbert.report.query_table import Measured
from cbert.report.report_data import ReportData, Variant
from cbert.tasks.base import Metric

DRAWS = 10_000
# Differences of recall are often exactly zero; rounding of the sums leaves less than this.
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


def over_groups(values: np.ndarray, groups: np.ndarray, weights: np.ndarray) -> Mean:
    """The mean with the standard error of `metrics.mean_and_error`."""
    mean, error = metrics.mean_and_error(values, groups, weights)
    return Mean(mean, error, GROUPS, len(np.unique(groups)))


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
    means = {
        name: over_groups(values, groups, measured.weights)
        for name, values in measured.values.items()
    }
    inside, count = np.ones(len(groups), bool), len(np.unique(groups))
    corpus = metrics.summarize_corpus(measured.corpus, groups, inside)
    for name, one in corpus.items():
        means[name] = Mean(one["mean"] or 0.0, one["standard_error"], GROUPS, count)
    known = [metric.name for metric in data.metrics if metric.name in means]
    return {name: means[name] for name in known}


def validation(variant: Variant) -> Mean | None:
    """The deciding metric on the validation split at the best step.

    None where a seed has no validation rows.
    """
    runs = variant.runs.values()
    if not all(run.curve for run in runs):
        return None
    return over_seeds([run.curve[run.best_step] for run in runs if run.best_step is not None])


def training_loss(variant: Variant) -> Mean | None:
    """The loss in the end of training; None where a seed has no training rows."""
    losses = [run.training_loss for run in variant.runs.values()]
    known = [loss for loss in losses if loss is not None]
    return over_seeds(known) if len(known) == len(losses) else None


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference in a metric between two variants, on the same queries and seeds.

    Attributes:
      base: The label of the variant that is subtracted.
      other: The label of the variant from which it is subtracted.
      metric: The metric.
      by_seed: The mean difference of each seed that both variants have.
      mean: The mean over those seeds.
      error: The standard error over groups; of a metric that is no mean, from the bootstrap.
      low: The lower end of the bootstrap's 95 % interval (groups are drawn with replacement).
      high: The upper end of the same interval.
      p: The bootstrap's two-sided p value.
      p_holm: The p value with Holm's correction over all pairs of the metric.
    """

    base: str
    other: str
    metric: Metric
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


def better(metric: Metric, low: float, high: float, by_seed: list[float]) -> int:
    """1 where the difference is clearly an improvement, -1 where it is clearly the opposite.

    It is clear when the interval excludes zero and every seed's difference has the same sign.
    Otherwise the result is 0.
    """
    sign = (low > 0) - (high < 0)
    same = all(np.sign(value) == sign for value in by_seed)
    direction = -1 if metric.best == "min" else 1
    return int(sign) * direction if same else 0


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
    if not chosen:
        return []
    drawn, wholes = _drawn(data)
    differences = []
    for metric in data.metrics:
        of_metric = [_difference(data, metric, pair, drawn, wholes) for pair in chosen]
        corrected = holm(np.array([one.p for one in of_metric]))
        differences += [
            dataclasses.replace(one, p_holm=float(p))
            for one, p in zip(of_metric, corrected, strict=True)
        ]
    return differences


_Run = tuple[str, int]


def _drawn(
    data: ReportData,
) -> tuple[dict[_Run, dict[str, np.ndarray]], dict[_Run, dict[str, float]]]:
    """(label, seed) to each metric when groups are drawn `[DRAWS]`, and over all queries."""
    measured = {
        (label, seed): one.every()
        for label, variant in data.variants.items()
        for seed, one in variant.measured.items()
    }
    groups = data.queries.groups
    sums = {run: metrics.corpus_sums(corpus, groups) for run, corpus in measured.items()}
    parts: dict[_Run, list[dict[str, np.ndarray]]] = {run: [] for run in measured}
    for weights in metrics.bootstrap_weights(len(np.unique(groups)), 0, DRAWS):
        for run, corpus in measured.items():
            parts[run].append(corpus.measure(weights @ sums[run]))
    names = [metric.name for metric in data.metrics]
    joined = {
        run: {name: np.concatenate([part[name] for part in of_run]) for name in names}
        for run, of_run in parts.items()
    }
    return joined, {run: corpus(np.ones(len(groups))) for run, corpus in measured.items()}


def _difference(
    data: ReportData,
    metric: Metric,
    pair: tuple[str, str, list[int]],
    drawn: dict[_Run, dict[str, np.ndarray]],
    wholes: dict[_Run, dict[str, float]],
) -> Difference:
    """The difference of one pair in one metric; Holm's p is left to the caller."""
    (base, other, seeds), name, groups = pair, metric.name, data.queries.groups
    by_seed = {seed: wholes[other, seed][name] - wholes[base, seed][name] for seed in seeds}
    draws = np.mean(
        [drawn[other, seed][name] - drawn[base, seed][name] for seed in seeds], axis=0
    )
    draws[np.abs(draws) < ROUNDING] = 0.0
    low, high = map(float, np.percentile(draws, [2.5, 97.5]))
    error: float | None = float(np.std(draws, ddof=1))
    p = p_value(draws)
    if len(np.unique(groups)) < 2:  # A single group says nothing about other groups.
        low, high, p, error = -np.inf, np.inf, 1.0, None
    of_base, of_other = (data.variants[label].measured for label in (base, other))
    if name in of_base[seeds[0]].values:
        values = np.mean(
            [of_other[seed].values[name] - of_base[seed].values[name] for seed in seeds], axis=0
        )
        _, error = metrics.mean_and_error(values, groups, data.queries.weights)
    mean = float(np.mean(list(by_seed.values())))
    return Difference(base, other, metric, by_seed, mean, error, low, high, p, p)


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
    """By how much a variant is better than the base in the deciding metric.

    It is `float64 [Q]`, averaged over the seeds of both; None where the two share no seed.
    """
    base, other = data.variants[data.base].measured, data.variants[label].measured
    seeds = sorted(base.keys() & other.keys())
    if not seeds:
        return None
    name, sign = data.metric.name, 1 if data.metric.best == "min" else -1
    gains = [sign * (base[seed].values[name] - other[seed].values[name]) for seed in seeds]
    return np.mean(gains, axis=0)
