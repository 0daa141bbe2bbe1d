"""Batches of a few sizes, so that little is compiled: padded before, cut and joined after."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np


def padded_batches(count: int, sizes: Sequence[int]) -> Iterator[tuple[np.ndarray, int]]:
    """Cuts rows into batches, each of the smallest size that holds it.

    Args:
      count: The number of rows.
      sizes: The sizes that are allowed, ascending; all batches but the last have the largest.

    Yields:
      The indices of a batch's rows, `int [size]`, filled up with the last one, and how many of
      them are not filling.
    """
    for start in range(0, count, sizes[-1]):
        own = min(sizes[-1], count - start)
        size = next(size for size in sizes if size >= own)
        yield start + np.minimum(np.arange(size), own - 1), own


Fetch = Callable[[Any], np.ndarray]


def fetched(batches: Iterable[tuple[Any, int]], fetch: Fetch = np.asarray) -> Iterator[Any]:
    """The results of each batch on the host, without the filling.

    A batch is fetched once the next one is dispatched, so that the devices never wait.

    Args:
      batches: For each batch a tuple or dict of arrays `[size, ...]` on the device, and how
        many of their rows are not filling.
      fetch: Makes an array on the host of an array on the device.
    """

    def rows(results: Any, count: int) -> Any:
        return jax.tree.map(lambda result: fetch(result)[:count], results)

    before = None
    for batch in batches:
        if before:
            yield rows(*before)
        before = batch
    if before:
        yield rows(*before)


def joined(batches: Iterable[tuple[Any, int]], fetch: Fetch = np.asarray) -> Any:
    """What `fetched` yields for the same arguments, joined; there is at least one batch."""
    return jax.tree.map(lambda *columns: np.concatenate(columns), *fetched(batches, fetch))
