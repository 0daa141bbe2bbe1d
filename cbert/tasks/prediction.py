"""All predictions of a task on a split, batch by batch, over all devices.

Legend: Q queries.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from cbert import parallel, progress
from cbert.data.batching import bucket_bounds
from cbert.data.columns import Split
from cbert.data.in_memory import take
from cbert.tasks.base import Queries, Task


@functools.lru_cache(maxsize=8)
def compiled(task: Task) -> Callable:
    """The task's `predict` mapped over devices, compiled once a length for equal tasks."""

    def predict(
        params: Any, data: dict, rows: jax.Array, query: dict, length: int
    ) -> dict[str, jax.Array]:
        return task.predict(params, take(data, rows, length), query)

    return parallel.map_queries(predict)


def predict_all(
    task: Task,
    params: Any,
    data: dict[str, Any],
    split: Split,
    queries: Queries,
    batch_size: int,
) -> dict[str, np.ndarray]:
    """Predicts every query.

    Args:
      task: The task.
      params: Parameters on every device.
      data: The split's columns on every device.
      split: The split.
      queries: What is asked about it.
      batch_size: Queries at a time, over all devices.

    Returns:
      Name to values `[Q]`, in the order of the queries.
    """
    predict, devices = compiled(task), parallel.local_device_count()
    batch_size = -(-batch_size // devices) * devices
    parts: dict[str, list[np.ndarray]] = {}
    order: list[np.ndarray] = []

    def keep(chosen: np.ndarray, outputs: dict[str, jax.Array]) -> None:
        order.append(chosen)
        for name, output in outputs.items():
            values = np.asarray(output)
            values = values.reshape(-1, *values.shape[2:])[: len(chosen)]
            parts.setdefault(name, []).append(values)

    batches = _batches(split.lengths[queries.rows], batch_size)
    before = None
    for length, chosen in progress.bar(
        batches, desc="evaluating", unit=" batches", leave=False
    ):
        # The last batch of a length is filled with repeats, so that nothing is recompiled.
        filled = np.resize(chosen, batch_size)
        rows = parallel.split_local(queries.rows[filled])
        query = {
            name: parallel.split_local(column[filled])
            for name, column in queries.columns.items()
        }
        outputs = predict(params, data, rows, query, length)
        if before:  # One batch late, so that the devices have the next one already.
            keep(*before)
        before = chosen, outputs
    if before:
        keep(*before)
    restore = np.argsort(np.concatenate(order))
    return {name: np.concatenate(values)[restore] for name, values in parts.items()}


def _batches(lengths: np.ndarray, batch_size: int) -> list[tuple[int, np.ndarray]]:
    """Each batch's padded length, and the indices of its queries: up to `batch_size`."""
    bounds = bucket_bounds(lengths, 8)
    padded = bounds[np.searchsorted(bounds, lengths)]
    batches = []
    for length in bounds:
        inside = np.nonzero(padded == length)[0]
        for start in range(0, len(inside), batch_size):
            batches.append((int(length), inside[start : start + batch_size]))
    return batches
