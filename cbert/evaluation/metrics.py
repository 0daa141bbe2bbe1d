"""Metrics of ranked questions, with standard errors over groups.

Legend: Q questions, G groups.
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
    sums, counts = _sums(values, groups)
    mean = sums.sum() / counts.sum()
    if len(sums) < 2:
        return float(mean), None
    residual = sums - mean * counts
    variance = len(sums) / (len(sums) - 1) * (residual**2).sum()
    return float(mean), float(np.sqrt(variance) / counts.sum())


def bootstrap_interval(
    values: np.ndarray, groups: np.ndarray, seed: int = 0, draws: int = 2000
) -> tuple[float, float]:
    """The 95 % percentile interval of the mean when groups are drawn with replacement."""
    sums, counts = _sums(values, groups)
    random = np.random.default_rng(seed)
    means = np.empty(draws)
    for draw in range(draws):
        chosen = random.integers(len(sums), size=len(sums))
        means[draw] = sums[chosen].sum() / counts[chosen].sum()
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def summarize(
    values: dict[str, np.ndarray], groups: np.ndarray
) -> dict[str, dict[str, float | None]]:
    """Mean and standard error of every metric."""
    found = {name: mean_and_error(values[name], groups) for name in NAMES}
    return {
        name: {"mean": mean, "standard_error": error} for name, (mean, error) in found.items()
    }


def _sums(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    codes = np.unique(groups, return_inverse=True)[1]
    return np.bincount(codes, values), np.bincount(codes).astype(np.float64)
