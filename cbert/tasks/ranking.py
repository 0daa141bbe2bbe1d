"""Metrics of a ranked target: the log-probability and the rank that a model gives it.

Legend: Q queries, V items.
"""

from collections.abc import Sequence

import numpy as np

from cbert.tasks.metric import CROSS_ENTROPY, Metric

RECALLS = (1, 5, 250)
METRICS = (
    CROSS_ENTROPY,
    Metric("recall@1", "max", "r@1", percent=True),
    Metric("recall@5", "max", "r@5", percent=True),
    Metric("recall@250", "max", "r@250", percent=True),
    Metric("mrr", "max", "MRR"),
    Metric("ndcg@10", "max", "NDCG@10"),
)


def metric_values(
    log_probability: np.ndarray, rank: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Each metric of each query, `float64 [Q]`.

    Args:
      log_probability: `[Q]`, nats.
      rank: `[Q]`, from 1; None where it is not known, and then cross-entropy is all.
    """
    values = {"cross_entropy": -np.asarray(log_probability, np.float64)}
    if rank is None:
        return values
    rank = np.asarray(rank, np.float64)
    return {
        **values,
        **{f"recall@{r}": (rank <= r).astype(np.float64) for r in RECALLS},
        "mrr": 1 / rank,
        "ndcg@10": np.where(rank <= 10, 1 / np.log2(rank + 1), 0.0),
    }


def log_fractions(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """log p(i), `float32 [V]`, with p(i) = (n_i + 1/2) / (N + V/2) from the counts."""
    smoothed = np.array(counts) + 0.5
    return np.log(smoothed / smoothed.sum()).astype(np.float32)
