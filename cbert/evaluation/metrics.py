"""Metrics of ranked questions, with standard errors over groups.

Legend: Q questions, G groups, K columns.
"""

import numpy as np

NAMES = ("cross_entropy", "recall@1", "recall@5", "recall@250", "mrr", "ndcg@10")


def per_question(log_probability: np.ndarray, rank: np.ndarray) -> dict[str, np.ndarray]:
    """Each metric of each question, `float64 [Q]`.

    Args:
      log_probability: `[Q]`, nats.
      rank: `[Q]`, from 1.
    """
    rank = np.asarray(rank, np.float64)
    recall = {f"recall@{r}": (rank <= r).astype(np.float64) for r in (1, 5, 250)}
    return {
        "cross_entropy": -np.asarray(log_probability, np.float64),
        **recall,
        "mrr": 1 / rank,
        "ndcg@10": np.where(rank <= 10, 1 / np.log2(rank + 1), 0.0),
    }


def group_codes(groups: list[str]) -> np.ndarray:
    """`int [Q]`, equal where the group is."""
    return np.unique(np.asarray(groups, object).astype(str), return_inverse=True)[1]


def mean_and_error(values: np.ndarray, groups: np.ndarray) -> tuple[float, float | None]:
    """Mean over questions and its standard error over groups.

    The questions of a group are not independent, so the error is that of a ratio of group
    sums: sqrt(G / (G - 1) sum_g (s_g - m n_g)^2) / Q; None for a single group.
    """
    return ratio_and_error(*group_sums(values, groups))


def ratio_and_error(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    """`mean_and_error` of group sums `[G]` and counts `[G]`."""
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

    A single group tells nothing of others: its interval has no ends.
    """
    sums, counts = group_sums(values, groups)
    if len(counts) < 2:
        return -np.inf, np.inf
    low, high = np.percentile(bootstrap_means(sums[:, None], counts, seed, draws), [2.5, 97.5])
    return float(low), float(high)


def bootstrap_means(
    sums: np.ndarray, counts: np.ndarray, seed: int = 0, draws: int = 2000
) -> np.ndarray:
    """Means of K columns when groups are drawn with replacement, `float64 [draws, K]`.

    Args:
      sums: `[G, K]`, each group's sum of each column.
      counts: `[G]`, its questions.
      seed: Decides which groups are drawn, the same for all columns.
      draws: How often.
    """
    random = np.random.default_rng(seed)
    size, found = len(counts), []
    chunk = max(1, 2**20 // size)
    for start in range(0, draws, chunk):
        some = min(chunk, draws - start)
        chosen = random.integers(size, size=(some, size)) + size * np.arange(some)[:, None]
        weights = np.bincount(chosen.ravel(), minlength=some * size).reshape(some, size)
        weights = weights.astype(np.float64)
        found.append((weights @ sums) / (weights @ counts)[:, None])
    return np.concatenate(found)


def summarize(
    values: dict[str, np.ndarray], groups: np.ndarray
) -> dict[str, dict[str, float | None]]:
    """Mean and standard error of every metric."""
    found = {name: mean_and_error(values[name], groups) for name in NAMES}
    return {
        name: {"mean": mean, "standard_error": error} for name, (mean, error) in found.items()
    }


def group_sums(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each group's sum of the values `[Q]` and its number of questions, `float64 [G]` each."""
    codes = np.unique(groups, return_inverse=True)[1]
    return np.bincount(codes, values), np.bincount(codes).astype(np.float64)
