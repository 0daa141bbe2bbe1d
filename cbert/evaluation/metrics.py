"""Means of metrics, with standard errors over groups.

A query is what an evaluation asks about one example; a task says what its metrics are.

Legend: Q queries, G groups, K columns.
"""

from collections.abc import Sequence

import numpy as np


def group_codes(groups: Sequence[str] | np.ndarray) -> np.ndarray:
    """One integer for each name, `int [Q]`; equal names have equal integers."""
    return np.unique(np.asarray(groups, object).astype(str), return_inverse=True)[1]


def mean_and_error(values: np.ndarray, groups: np.ndarray) -> tuple[float, float | None]:
    """The mean over queries and its standard error over groups.

    The queries of a group are not independent, so the error is that of a ratio of group sums:
    sqrt(G / (G - 1) sum_g (s_g - m n_g)^2) / Q. A single group has no error: it is None.
    """
    return ratio_and_error(*group_sums(values, groups))


def ratio_and_error(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    """`mean_and_error`, computed from group sums `[G]` and counts `[G]`."""
    mean = sums.sum() / counts.sum()
    if len(sums) < 2:
        return float(mean), None
    residual = sums - mean * counts
    variance = len(sums) / (len(sums) - 1) * (residual**2).sum()
    return float(mean), float(np.sqrt(variance) / counts.sum())


def bootstrap_interval(
    values: np.ndarray, groups: np.ndarray, seed: int = 0, draws: int = 2000
) -> tuple[float, float]:
    """The 95 % percentile interval of the mean when groups are drawn with replacement.

    A single group says nothing about other groups, so its interval is infinite.
    """
    sums, counts = group_sums(values, groups)
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
    values: dict[str, np.ndarray], groups: np.ndarray, names: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """The mean and the standard error of the named metrics."""
    summary = {}
    for name in names:
        mean, error = mean_and_error(values[name], groups)
        summary[name] = {"mean": mean, "standard_error": error}
    return summary


def group_sums(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the values `[Q]`, and the number of queries, in each group: `float64 [G]`."""
    codes = np.unique(groups, return_inverse=True)[1]
    return np.bincount(codes, values), np.bincount(codes).astype(np.float64)
