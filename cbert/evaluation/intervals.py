"""Intervals and tests for a difference between two methods, over seeds and groups.

Seeds and groups are two random samples, and crossed: each seed is measured on every group. The
variance of the mean is that of the two-way random-effects model, and the degrees of freedom
build on Satterthwaite (1946). docs/sweeps.md has the formulas.

Legend: S seeds, G groups, f_g the fraction of the queries that group g has.
"""

import dataclasses
from typing import TypedDict

import numpy as np
import scipy.special

LEVEL = 0.05  # Intervals hold 95 %, and tests have this level.


class Summary(TypedDict):
    """A metric as evaluations write it.

    Attributes:
      mean: The mean, or the value of a metric that is none.
      standard_error: Its standard error; None where nothing is known.
    """

    mean: float
    standard_error: float | None


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Means with standard errors and degrees of freedom: numbers, or arrays of one shape.

    Attributes:
      mean: The means.
      error: The standard errors; infinite where nothing is known.
      freedom: The degrees of freedom of the t distribution.
    """

    mean: np.ndarray
    error: np.ndarray
    freedom: np.ndarray

    def summary(self) -> Summary:
        """A single mean and its error, as numbers."""
        error = float(self.error) if np.isfinite(self.error) else None
        return {"mean": float(self.mean), "standard_error": error}

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The two ends of the 95 % interval."""
        reach = scipy.special.stdtrit(self.freedom, 1 - LEVEL / 2) * self.error
        return self.mean - reach, self.mean + reach

    def p_different(self) -> np.ndarray:
        """The two-sided p value of the hypothesis that the true mean is 0."""
        return np.minimum(2 * self._below(-np.abs(self.mean)), 1.0)

    def p_level(self, margin: float) -> np.ndarray:
        """The p value of the hypothesis that the true mean is not within the margin.

        It is the larger one of two one-sided tests (Schuirmann, 1987).
        """
        return self._below(np.abs(self.mean) - margin)

    def _below(self, distance: np.ndarray) -> np.ndarray:
        """How probable a t value of at most `distance / error` is; 1 at 0 without an error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            probability = scipy.special.stdtr(self.freedom, distance / self.error)
        return np.where(np.isnan(probability), 1.0, probability)


def effective_groups(fractions: np.ndarray) -> float:
    """How many groups of equal size say as much: 1 / sum_g f_g^2.

    Args:
      fractions: `float64 [G]`, see `metrics.fractions`.
    """
    return float(1 / (fractions**2).sum())


def degrees_of_freedom(fractions: np.ndarray) -> float:
    """Those of the variance over groups: of the effective groups less one, at least 1.

    Two groups have one degree of freedom, whatever their sizes.
    """
    return max(effective_groups(fractions) - 1, 1.0)


def groups_factor(fractions: np.ndarray) -> float:
    """What makes the sum of squared influences the variance over groups.

    With h = sum_g f_g^2 it is h / sum_g f_g^2 (1 - 2 f_g + h), which is without bias where
    groups differ by effects of one variance; for equal groups it is G / (G - 1). It is infinite
    where one group has all queries.
    """
    h = (fractions**2).sum()
    expected = (fractions**2 * (1 - 2 * fractions + h)).sum()
    return float(h / expected) if h < 1 - 1e-9 else np.inf


def two_level(by_seed: np.ndarray, influence: np.ndarray, fractions: np.ndarray) -> Estimate:
    """The mean over seeds, whose error carries the seeds and the groups.

    With one seed the error carries the groups alone. A single group leaves it unknown, and so
    does an influence that is NaN.

    Args:
      by_seed: `float64 [..., S]`, the difference that each seed has.
      influence: `float64 [..., S, G]`, the influence of each group on it, see
        `metrics.influence`.
      fractions: `float64 [G]`, the fraction of the queries that each group has.
    """
    seeds = influence.shape[-2]
    mean = by_seed.mean(axis=-1)
    factor = groups_factor(fractions)
    if np.isinf(factor) or np.isnan(influence).any():
        return Estimate(mean, np.full_like(mean, np.inf), np.ones_like(mean))
    groups_freedom = degrees_of_freedom(fractions)
    influence = influence - influence.mean(axis=-1, keepdims=True)
    over_groups = factor * (influence.mean(axis=-2) ** 2).sum(axis=-1)
    if seeds == 1:
        return Estimate(mean, np.sqrt(over_groups), np.full_like(mean, groups_freedom))
    over_seeds = by_seed.var(axis=-1, ddof=1) / seeds
    rest = influence - influence.mean(axis=-2, keepdims=True)
    # What a seed does to a group is in both variances and is counted once.
    both_freedom = (seeds - 1) * groups_freedom
    both = factor * (rest**2).sum(axis=(-2, -1)) / (seeds * (seeds - 1))
    variance = np.maximum(over_seeds + over_groups - both, np.maximum(over_seeds, over_groups))
    parts = over_seeds**2 / (seeds - 1) + over_groups**2 / groups_freedom
    parts = parts + both**2 / both_freedom
    known = np.where(variance > 0, variance, 1.0)
    # Satterthwaite's estimate is too large where seeds agree by chance; seeds - 1 is the least.
    freedom = 2 / (parts / known**2 + 1 / (seeds - 1))
    return Estimate(mean, np.sqrt(variance), freedom)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down correction: the i-th smallest of n values times n - i + 1, monotone."""
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    restored = np.empty(len(p))
    restored[order] = np.minimum(corrected, 1.0)
    return restored
