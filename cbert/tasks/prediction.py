"""All predictions of a task on a split, batch by batch over all devices, and their metrics.

Legend: Q queries.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from cbert import parallel, progress
from cbert.data.batching import MOST_BUCKETS, bucket_bounds
from cbert.data.columns import Split
from cbert.data.in_memory import gather_rows
from cbert.data.padding import joined, padded_batches
from cbert.model import parameter_tree, placement
from cbert.tasks.base import Queries, Task

Predictions = dict[str, np.ndarray]  # Name to what is predicted, see `Task.predict`.


@functools.lru_cache(maxsize=8)
def compiled(task: Task) -> Callable:
    """The task's `predict` mapped over devices, compiled once a length for equal tasks."""

    def predict(
        params: Any, data: dict, rows: jax.Array, query: dict, length: int
    ) -> dict[str, jax.Array]:
        return task.predict(params, gather_rows(data, rows, length), query)

    where = placement.choose(task.model)
    shapes = parameter_tree.shapes(task.model) if where.shards > 1 else None
    return parallel.map_queries(predict, where.axes(shapes))


def predict_all(
    task: Task,
    params: Any,
    data: dict[str, Any],
    split: Split,
    queries: Queries,
    batch_size: int,
) -> Predictions:
    """Predicts every query.

    Args:
      task: The task.
      params: Parameters on the devices, see `Placement`.
      data: The split's columns on every device.
      split: The split.
      queries: The queries about the split.
      batch_size: Queries at a time, over all devices.

    Returns:
      Name to values `[Q]`, in the order of the queries.
    """
    predict, batch_size = compiled(task), parallel.divisible(batch_size)
    params, asked = parameter_tree.rounded(task.model, params), task.asked(queries)
    lengths = split.lengths[asked.rows]
    bounds = bucket_bounds(lengths, MOST_BUCKETS, batch_size)
    batches = length_batches(lengths, batch_size, bounds)

    def predicted(length: int, indices: np.ndarray) -> dict[str, jax.Array]:
        rows = parallel.split_local(asked.rows[indices])
        query = {
            name: parallel.split_local(column[indices])
            for name, column in asked.columns.items()
        }
        return predict(params, data, rows, query, length)

    bar = progress.bar(batches, desc="evaluating", unit=" batches", leave=False)
    values = joined(
        ((predicted(length, indices), count) for length, indices, count in bar),
        parallel.join_local,
    )
    restore = np.argsort(np.concatenate([indices[:count] for _, indices, count in batches]))
    predictions = {name: column[restore] for name, column in values.items()}
    return task.joined(predictions, queries)


def length_batches(
    lengths: np.ndarray, batch_size: int, bounds: np.ndarray
) -> list[tuple[int, np.ndarray, int]]:
    """Each batch's padded length, the indices of its queries, and how many of them count.

    Args:
      lengths: `int [Q]`, the items of each query's example.
      batch_size: Queries at a time.
      bounds: The padded lengths, ascending; see `bucket_bounds`.
    """
    padded = bounds[np.searchsorted(bounds, lengths)]
    batches = []
    for length in bounds:
        inside = np.nonzero(padded == length)[0]
        for indices, count in padded_batches(len(inside), [batch_size]):
            batches.append((int(length), inside[indices], count))
    return batches


def metrics(task: Task, predictions: Predictions, queries: Queries) -> dict[str, float]:
    """Every metric that the predictions have: means by the queries' weights, and the others."""
    return means(task, predictions, queries) | others(task, predictions, queries)


def means(task: Task, predictions: Predictions, queries: Queries) -> dict[str, float]:
    """The metrics that are means over queries, by the queries' weights."""
    weights = queries.weights / queries.weights.sum()
    values = task.metric_values(predictions, queries)
    return {name: float(column @ weights) for name, column in values.items()}


def others(task: Task, predictions: Predictions, queries: Queries) -> dict[str, float]:
    """The metrics that are no means over queries."""
    return task.corpus_metrics(predictions, queries)(np.ones(len(queries)))
