"""Means of metrics, with standard errors over groups.

A query is what an evaluation asks about one example; a task says what its metrics are.

Legend: Q queries, G groups, K columns.
"""

from collections.abc import Callable, Sequence

import numpy as np


def group_codes(groups: Sequence[str] | np.ndarray) -> np.ndarray:
    """One integer for each name, `int [Q]`; equal names have equal integers."""
    return np.unique(np.asarray(groups, object).astype(str), return_inverse=True)[1]


def mean_and_error(
    values: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, float | None]:
    """The mean over queries, which may have weights, and its standard error over groups.

    The queries of a group are not independent, so the error is that of a ratio of group sums:
    sqrt(G / (G - 1) sum_g (s_g - m n_g)^2) / Q. A single group has no error: it is None.
    """
    return ratio_and_error(*group_sums(values, groups, weights))


def ratio_and_error(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    """`mean_and_error`, computed from group sums `[G]` and counts `[G]`."""
    mean = sums.sum() / counts.sum()
    if len(sums) < 2:
        return float(mean), None
    residual = sums - mean * counts
    variance = len(sums) / (len(sums) - 1) * (residual**2).sum()
    return float(mean), float(np.sqrt(variance) / counts.sum())


def bootstrap_interval(
    values: np.ndarray,
    groups: np.ndarray,
    seed: int = 0,
    draws: int = 2000,
    weights: np.ndarray | None = None,
) -> tuple[float, float]:
    """The 95 % percentile interval of the mean when groups are drawn with replacement.

    A single group says nothing about other groups, so its interval is infinite.
    """
    sums, counts = group_sums(values, groups, weights)
    if len(counts) < 2:
        return -np.inf, np.inf
    low, high = np.percentile(bootstrap_means(sums[:, None], counts, seed, draws), [2.5, 97.5])
    return float(low), float(high)


def bootstrap_means(
    sums: np.ndarray, counts: np.ndarray, seed: int = 0, draws: int = 2000
) -> np.ndarray:
    """The means of K columns when groups are drawn with replacement, `float64 [draws, K]`.

    Args:
      sums: `[G, K]`, the sum of each column over the queries of each group.
      counts: `[G]`, the number of queries of each group.
      seed: It decides which groups are drawn; they are the same for all columns.
      draws: How many times the groups are drawn.
    """
    random = np.random.default_rng(seed)
    size, means = len(counts), []
    chunk = max(1, 2**20 // size)
    for start in range(0, draws, chunk):
        some = min(chunk, draws - start)
        chosen = random.integers(size, size=(some, size)) + size * np.arange(some)[:, None]
        weights = np.bincount(chosen.ravel(), minlength=some * size).reshape(some, size)
        weights = weights.astype(np.float64)
        means.append((weights @ sums) / (weights @ counts)[:, None])
    return np.concatenate(means)


def summarize(
    values: dict[str, np.ndarray],
    groups: np.ndarray,
    names: Sequence[str],
    weights: np.ndarray | None = None,
) -> dict[str, dict[str, float | None]]:
    """The mean and the standard error of the named metrics."""
    summary = {}
    for name in names:
        mean, error = mean_and_error(values[name], groups, weights)
        summary[name] = {"mean": mean, "standard_error": error}
    return summary


def summarize_corpus(
    function: Callable[[np.ndarray], dict[str, float]],
    groups: np.ndarray,
    inside: np.ndarray,
    draws: int = 200,
) -> dict[str, dict[str, float | None]]:
    """Metrics that are no means, with standard errors over groups drawn with replacement.

    Args:
      function: How often each query counts, `[Q]`, to the metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take.
      draws: How many times the groups are drawn; a single group has no error.
    """
    whole = function(inside.astype(np.float64))
    present, codes = np.unique(groups[inside], return_inverse=True)
    errors: dict[str, float | None] = dict.fromkeys(whole)
    if whole and len(present) > 1:
        random, drawn = np.random.default_rng(0), []
        for _ in range(draws):
            chosen = random.integers(len(present), size=len(present))
            counts = np.zeros(len(groups))
            counts[inside] = np.bincount(chosen, minlength=len(present))[codes]
            drawn.append(list(function(counts).values()))
        deviations = np.std(drawn, axis=0, ddof=1)
        errors = dict(zip(whole, map(float, deviations), strict=True))
    return {
        name: {"mean": value, "standard_error": errors[name]} for name, value in whole.items()
    }


def group_sums(
    values: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The weighted sum of the values `[Q]`, and of the weights, in each group: `float64 [G]`.

    Without weights each query weighs 1.
    """
    codes = np.unique(groups, return_inverse=True)[1]
    weights = np.ones(len(values)) if weights is None else weights
    return np.bincount(codes, values * weights), np.bincount(codes, weights)
