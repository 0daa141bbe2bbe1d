"""A split that stays on disk; a step is sent the columns of its own rows, read ahead.

Legend: B examples.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from cbert import parallel
from cbert.config import LARGEST_INTEGER
from cbert.data.batching import BLOCK, Batches, rows_of_seeds
from cbert.data.columns import Split
from cbert.data.in_memory import cut_tokens

# Reading waits for the disk and for memory to be copied, so few threads are enough.
THREADS = 2


class Streaming:
    """Feeds columns; the counterpart of `in_memory.InMemory`, with the same batches.

    The split's arrays are mapped from its file, so that only the rows that a step needs are
    read: those of this process's devices.
    """

    def __init__(self, split: Split, batches: list[Batches]) -> None:
        """One `Batches` for each seed that trains in the program."""
        self._batches, self._columns = batches, split.columns
        self.resident: dict[str, Any] = {}
        self._ahead: Iterator[dict[str, Any]] = iter(())
        self._next = -1

    def feed(self, step: int, most: int) -> tuple[Any, int, int]:
        """What is sent to the devices for `most` steps, or for one.

        Returns:
          The columns of all rows of these steps, `[devices, rows, ...]`, and rows of these
          columns, `int32 [devices, steps, B / devices]` or, with several seeds, `[devices,
          steps, seeds, B / devices]`; the number of steps; their padded length.
        """
        rows, length = rows_of_seeds(self._batches, step, most)
        if step != self._next:
            self._ahead = _read_ahead(_Steps(self._columns, self._batches), step)
        parts = [next(self._ahead) for _ in rows]
        self._next = step + len(parts)
        columns = jax.tree.map(lambda *steps: np.concatenate(steps, axis=1), *parts)
        return (columns, _counted(parallel.split(rows, -1))), len(parts), length


def _counted(rows: np.ndarray) -> np.ndarray:
    """The rows of each device, `[devices, ...]`, numbered in the order in which they lie."""
    numbers = np.arange(rows[0].size, dtype=np.int32).reshape(rows.shape[1:])
    return np.broadcast_to(numbers, rows.shape)


class _Steps:
    """The columns of each step's rows, as a source that grain reads in its threads."""

    def __init__(self, columns: dict[str, Any], batches: list[Batches]) -> None:
        self._columns, self._batches = columns, batches

    def __len__(self) -> int:
        return LARGEST_INTEGER

    def __getitem__(self, step: int) -> dict[str, Any]:
        """Its columns, `[devices, B / devices, ...]`, those of several seeds one by one.

        Those of tokens are cut to the step's padded length.
        """
        rows, length = rows_of_seeds(self._batches, step, 1)
        own = parallel.split(rows[0], -1)
        # Unlike an index in brackets, `take` lets other threads run.
        taken = jax.tree.map(
            lambda column: column.take(own.reshape(len(own), -1), axis=0), self._columns
        )
        return cut_tokens(taken, length)


def _read_ahead(steps: _Steps, first: int) -> Iterator[dict[str, Any]]:
    """The columns of each step from the first on."""
    import grain  # It is slow to import, and training from memory goes without it.

    options = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * BLOCK)
    return iter(grain.MapDataset.source(steps)[first:].to_iter_dataset(options))
