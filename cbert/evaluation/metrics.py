"""Means of metrics, with standard errors over groups.

A query is what an evaluation asks about one example; a task says what its metrics are.

Legend: Q queries, G groups, K columns.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from cbert.random_streams import stream
from cbert.tasks.base import CorpusMetrics


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
    return np.concatenate(
        [
            (weights @ sums) / (weights @ counts)[:, None]
            for weights in bootstrap_weights(len(counts), seed, draws)
        ]
    )


def bootstrap_weights(size: int, seed: int, draws: int) -> Iterator[np.ndarray]:
    """How often each of G groups is drawn, when as many are drawn with replacement.

    Yields:
      `float64 [some, G]`, a few draws at a time.
    """
    random = stream("bootstrap", seed)
    chunk = max(1, 2**20 // size)
    for start in range(0, draws, chunk):
        some = min(chunk, draws - start)
        chosen = random.integers(size, size=(some, size)) + size * np.arange(some)[:, None]
        weights = np.bincount(chosen.ravel(), minlength=some * size).reshape(some, size)
        yield weights.astype(np.float64)


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
    corpus: CorpusMetrics,
    groups: np.ndarray,
    inside: np.ndarray,
    draws: int = 200,
) -> dict[str, dict[str, float | None]]:
    """Metrics that are no means, with standard errors over groups drawn with replacement.

    Args:
      corpus: The metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take.
      draws: How many times the groups are drawn; a single group has no error.
    """
    whole = corpus(inside.astype(np.float64))
    errors: dict[str, float | None] = dict.fromkeys(whole)
    sums = corpus_sums(corpus, groups, inside)
    if whole and sums.shape[0] > 1:
        drawn = [
            corpus.measure(weights @ sums)
            for weights in bootstrap_weights(sums.shape[0], 0, draws)
        ]
        for name in whole:
            values = np.concatenate([measured[name] for measured in drawn])
            errors[name] = float(np.std(values, ddof=1))
    return {
        name: {"mean": value, "standard_error": errors[name]} for name, value in whole.items()
    }


def corpus_sums(
    corpus: CorpusMetrics, groups: np.ndarray, inside: np.ndarray | None = None
) -> Any:
    """The sums of a metric's statistics over each group that has queries, `float64 [G, K]`.

    Args:
      corpus: The metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take; None for all.
    """
    rows = np.arange(len(groups)) if inside is None else np.nonzero(inside)[0]
    codes = np.unique(groups[rows], return_inverse=True)[1]
    shape = int(codes.max(initial=-1)) + 1, len(groups)
    indicator = scipy.sparse.csr_array((np.ones(len(rows)), (codes, rows)), shape=shape)
    return indicator @ corpus.statistics


def group_sums(
    values: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The weighted sum of the values `[Q]`, and of the weights, in each group: `float64 [G]`.

    Without weights each query weighs 1.
    """
    codes = np.unique(groups, return_inverse=True)[1]
    weights = np.ones(len(values)) if weights is None else weights
    return np.bincount(codes, values * weights), np.bincount(codes, weights)
