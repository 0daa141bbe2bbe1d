"""Means of metrics, with standard errors over groups.

A query is what an evaluation asks about one example; a task says what its metrics are.

Legend: Q queries, G groups, K columns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from cbert.evaluation import intervals
from cbert.evaluation.intervals import Estimate, Summary
from cbert.tasks.metric import CorpusMetrics

_AT_ONCE = 256  # Groups whose statistics are held at once.
_STEP = 1e-3


def group_codes(groups: Sequence[str] | np.ndarray) -> np.ndarray:
    """One integer for each name, `int [Q]`; equal names have equal integers."""
    # Objects, because NumPy's own strings are all as long as the longest.
    names = np.array([str(group) for group in groups], object)
    return np.unique(names, return_inverse=True)[1]


def estimate(
    values: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> Estimate:
    """The mean over queries, which may have weights, and its standard error over groups.

    The queries of a group are not independent, so the error is that of a ratio of group sums:
    sqrt(k sum_g (s_g - m n_g)^2) / Q, where k is `intervals.groups_factor`. That of a single
    group is not known: it is infinite.

    Args:
      values: `float64 [Q]`.
      groups: `int [Q]`.
      weights: `float64 [Q]`; by default each query weighs 1.
    """
    sums, counts = group_sums(values, groups, weights)
    total = counts.sum()
    mean = sums.sum() / total
    return _one_seed(mean, (sums - mean * counts) / total, counts / total)


def _one_seed(whole: float, influence: np.ndarray, fractions: np.ndarray) -> Estimate:
    return intervals.two_level(np.array([whole]), influence[None], fractions)


def fractions(
    groups: np.ndarray, weights: np.ndarray, inside: np.ndarray | None = None
) -> np.ndarray:
    """The fraction of the queries, by their weights, that each group has: `float64 [G]`.

    Args:
      groups: `int [Q]`.
      weights: `float64 [Q]`.
      inside: `bool [Q]`, the queries to take; None for all.
    """
    taken = slice(None) if inside is None else inside
    counts = group_sums(weights[taken], groups[taken])[0]
    return counts / counts.sum()


def influence(
    corpus: CorpusMetrics, groups: np.ndarray, inside: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """How fast each metric changes with the weight of each group, `float64 [G]`.

    A group whose queries weigh nothing has no influence on a mean. This is the infinitesimal
    jackknife (Jaeckel, 1972), by a central difference where a metric does not give its
    derivatives. For a mean m it is (s_g - m n_g) / Q, so that its error is that of `estimate`.

    Args:
      corpus: The metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take; None for all.
    """
    inside = np.ones(len(groups), bool) if inside is None else inside
    sums = corpus_sums(corpus, groups, inside)
    total = np.ones(sums.shape[0]) @ sums
    parts = []
    for start in range(0, sums.shape[0], _AT_ONCE):
        part = sums[start : start + _AT_ONCE]
        change = _STEP * (part.toarray() if scipy.sparse.issparse(part) else part)
        more, less = corpus.measure(total + change), corpus.measure(total - change)
        parts.append({name: (more[name] - less[name]) / (2 * _STEP) for name in more})
    of_sums = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    ranked = corpus.ranked(inside.astype(np.float64))
    return of_sums | {
        name: group_sums(slopes[inside], groups[inside])[0]
        for name, (_, slopes) in ranked.items()
    }


def summarize_corpus(
    corpus: CorpusMetrics,
    groups: np.ndarray,
    inside: np.ndarray,
    weights: np.ndarray | None = None,
) -> dict[str, Summary]:
    """Metrics that are no means, with standard errors over groups; those that are NaN left out.

    Args:
      corpus: The metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take; those of a single group have no error.
      weights: `float64 [Q]`, what each query weighs in a mean, by which the groups have their
        sizes; by default, and where all are 0, a query counts once.
    """
    whole = corpus(inside.astype(np.float64))
    influences = influence(corpus, groups, inside) if whole else {}
    if weights is None or not weights[inside].any():
        weights = np.ones(len(groups))
    sizes = fractions(groups, weights, inside)
    return {
        name: _one_seed(value, influences[name], sizes).summary()
        for name, value in whole.items()
        if not np.isnan(value)
    }


def corpus_sums(corpus: CorpusMetrics, groups: np.ndarray, inside: np.ndarray) -> Any:
    """The sums of a metric's statistics over each group that has queries, `float64 [G, K]`.

    Args:
      corpus: The metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take.
    """
    rows = np.nonzero(inside)[0]
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
