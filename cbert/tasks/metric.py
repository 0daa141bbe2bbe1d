"""The metrics of an evaluation: their names and directions, and those that are no means.

Legend: Q queries, K statistics of a query.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.sparse

from cbert.text_table import numbers


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric: its name, its better direction, and how it is shown.

    Attributes:
      name: As in `metrics.jsonl` and in evaluations.
      best: Whether the smallest value is the best, or the largest.
      heading: As in tables and at the terminal.
      percent: Whether it is a fraction that is shown in percent.
      judges_constants: Whether it says something of predictions that are always the same, which
        have no correlation with anything, and are calibrated without effort.
    """

    name: str
    best: Literal["min", "max"]
    heading: str
    percent: bool = False
    judges_constants: bool = True

    @property
    def sign(self) -> int:
        """What turns a value into one of which less is better: 1 or -1."""
        return 1 if self.best == "min" else -1

    @property
    def worsening(self) -> str:
        """What the metric does when predictions become worse: `rise` or `fall`."""
        return "rise" if self.best == "min" else "fall"

    def improves(self, value: float, best: float) -> bool:
        """Whether a value is better than the best one so far."""
        return self.sign * value < self.sign * best

    @property
    def title(self) -> str:
        """The heading of a column, with the unit."""
        return f"{self.heading} %" if self.percent else self.heading

    @property
    def unit(self) -> str:
        """The unit, empty where there is none."""
        if self.percent:
            return "%"
        return "nats" if self.name == "cross_entropy" else ""

    @property
    def scale(self) -> int:
        """What values are multiplied by to be shown."""
        return 100 if self.percent else 1

    @property
    def digits(self) -> int:
        """The digits after the point that are shown."""
        return 2 if self.percent else 4

    def text(self, value: float) -> str:
        """The value as a person reads it."""
        return f"{value:.2%}" if self.percent else numbers([value])[0]


CROSS_ENTROPY = Metric("cross_entropy", "min", "cross-entropy")
ACCURACY = Metric("accuracy", "max", "accuracy", percent=True)
EXACT_MATCH = Metric("exact_match", "max", "exact match", percent=True)
MACRO_F1 = Metric("macro_f1", "max", "macro-F1", percent=True)

# Metric to its value, and to its derivative by the weight of each query, `float64 [Q]`.
Ranked = dict[str, tuple[float, np.ndarray]]


def _nothing_ranked(weights: np.ndarray) -> Ranked:
    return {}


@dataclasses.dataclass(frozen=True)
class CorpusMetrics:
    """Metrics as functions of sums over queries: an F1, say, which is no mean over them.

    Sums also serve the slices of a split, and the influence of its groups.

    Attributes:
      statistics: `float64 [Q, K]`, what each query adds to the sums; it may be sparse.
      measure: Sums `[..., K]` to each metric, `[...]`.
      ranked: Weights `float64 [Q]` to the metrics that give their derivatives, as those do that
        depend on the order of all queries and on no few sums; the derivatives count where the
        weight is not 0, and are NaN where they are not known.
    """

    statistics: Any
    measure: Callable[[np.ndarray], dict[str, np.ndarray]]
    ranked: Callable[[np.ndarray], Ranked] = _nothing_ranked

    def __call__(self, weights: np.ndarray) -> dict[str, float]:
        """The metrics where each query counts as often as `float64 [Q]` says."""
        measured = self.measure(weights @ self.statistics)
        ranked = {name: value for name, (value, _) in self.ranked(weights).items()}
        return {name: float(value) for name, value in (measured | ranked).items()}

    def __add__(self, other: "CorpusMetrics") -> "CorpusMetrics":
        """The metrics of both."""
        both = self.statistics, other.statistics
        if any(map(scipy.sparse.issparse, both)):
            statistics = scipy.sparse.hstack(both, format="csr")
        else:
            statistics = np.hstack(both)
        own = self.statistics.shape[1]

        def measure(sums: np.ndarray) -> dict[str, np.ndarray]:
            return {**self.measure(sums[..., :own]), **other.measure(sums[..., own:])}

        def ranked(weights: np.ndarray) -> Ranked:
            return {**self.ranked(weights), **other.ranked(weights)}

        return CorpusMetrics(statistics, measure, ranked)


def without_sums(
    count: int, ranked: Callable[[np.ndarray], Ranked] = _nothing_ranked
) -> CorpusMetrics:
    """The `CorpusMetrics` of Q queries that need no sums: those of `ranked` alone, if any."""
    return CorpusMetrics(np.zeros((count, 0)), lambda sums: {}, ranked)
