"""Means of metrics, with standard errors over groups.

A query is what an evaluation asks about one example; a task says what its metrics are.

Legend: Q queries, G groups, K columns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from cbert.tasks.metric import CorpusMetrics

_AT_ONCE = 256  # Groups whose statistics are held at once.
_STEP = 1e-3


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
    groups = np.count_nonzero(counts)  # One whose queries weigh nothing says nothing.
    if groups < 2:
        return float(mean), None
    residual = sums - mean * counts
    variance = groups / (groups - 1) * (residual**2).sum()
    return float(mean), float(np.sqrt(variance) / counts.sum())


def influence(
    corpus: CorpusMetrics, groups: np.ndarray, inside: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """How fast each metric changes with the weight of each group, `float64 [G]`.

    Groups whose queries weigh nothing say nothing about means, and are left out of these. This
    is the infinitesimal jackknife (Jaeckel, 1972), by a central difference. For a mean m it is
    (s_g - m n_g) / Q, so that its error is that of `mean_and_error`.

    Args:
      corpus: The metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take; None for all.
    """
    sums = corpus_sums(corpus, groups, inside)
    total = np.ones(sums.shape[0]) @ sums
    parts = []
    for start in range(0, sums.shape[0], _AT_ONCE):
        part = sums[start : start + _AT_ONCE]
        change = _STEP * (part.toarray() if scipy.sparse.issparse(part) else part)
        more, less = corpus.measure(total + change), corpus.measure(total - change)
        parts.append({name: (more[name] - less[name]) / (2 * _STEP) for name in more})
    influences = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if corpus.weights is not None:
        taken = slice(None) if inside is None else inside
        _, weights = group_sums(corpus.weights[taken], groups[taken], corpus.weights[taken])
        influences |= {name: influences[name][weights > 0] for name in corpus.means}
    return influences


def every(
    values: dict[str, np.ndarray], weights: np.ndarray, corpus: CorpusMetrics
) -> CorpusMetrics:
    """All metrics, the means among them, as functions of sums over queries.

    Args:
      values: Each metric that is a mean over queries, `float64 [Q]`.
      weights: `float64 [Q]`, what each query weighs in a mean.
      corpus: The metrics that are no means.
    """
    columns = [*(weights * column for column in values.values()), weights]

    def means(sums: np.ndarray) -> dict[str, np.ndarray]:
        return {name: sums[..., n] / sums[..., -1] for n, name in enumerate(values)}

    of_means = CorpusMetrics(np.stack(columns, axis=1), means, tuple(values), weights)
    return of_means + corpus


def summarize(
    values: dict[str, np.ndarray],
    groups: np.ndarray,
    weights: np.ndarray | None = None,
) -> dict[str, dict[str, float | None]]:
    """The mean and the standard error of each metric."""
    summary = {}
    for name, column in values.items():
        mean, error = mean_and_error(column, groups, weights)
        summary[name] = {"mean": mean, "standard_error": error}
    return summary


def summarize_corpus(
    corpus: CorpusMetrics, groups: np.ndarray, inside: np.ndarray
) -> dict[str, dict[str, float | None]]:
    """Metrics that are no means, with standard errors over groups.

    Args:
      corpus: The metrics.
      groups: `int [Q]`.
      inside: `bool [Q]`, the queries to take; those of a single group have no error.
    """
    whole = corpus(inside.astype(np.float64))
    influences = influence(corpus, groups, inside) if whole else {}
    summary: dict[str, dict[str, float | None]] = {}
    for name, value in whole.items():
        of_groups = influences[name]
        count = len(of_groups)
        error = float(np.sqrt(count * of_groups.var(ddof=1))) if count > 1 else None
        summary[name] = {"mean": value, "standard_error": error}
    return summary


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
