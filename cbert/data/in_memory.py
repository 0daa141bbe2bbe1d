"""A split whose columns live on the devices; a step is sent the numbers of its rows.

Legend: B examples, L positions.
"""

from typing import Any

import jax
import numpy as np

from cbert import parallel
from cbert.data.batching import Batches, rows_of_seeds
from cbert.data.columns import TOKEN_COLUMNS, Split


def gather_rows(
    columns: dict[str, Any], rows: jax.Array | np.ndarray, length: int
) -> dict[str, Any]:
    """The columns of some examples, those of tokens cut to the padded length."""
    return cut_tokens(jax.tree.map(lambda column: column[rows], columns), length)


def cut_tokens(columns: dict[str, Any], length: int) -> dict[str, Any]:
    """The columns with those of tokens, `[..., L]`, cut to the padded length."""
    cut = {name: columns[name][..., :length] for name in TOKEN_COLUMNS if name in columns}
    return {**columns, **cut}


class InMemory:
    """Feeds rows; the counterpart of `streaming.Streaming`, with the same batches."""

    def __init__(self, split: Split, batches: list[Batches]) -> None:
        """One `Batches` for each seed that trains in the program."""
        self._batches = batches
        self.resident = parallel.replicate(split.columns)

    def feed(self, step: int, most: int) -> tuple[Any, int, int]:
        """What is sent to the devices for `most` steps, or for one.

        Returns:
          No columns, and rows of the resident ones, `int32 [devices, steps, B / devices]` or,
          with several seeds, `[devices, steps, seeds, B / devices]`; the number of steps; their
          padded length.
        """
        rows, length = rows_of_seeds(self._batches, step, most)
        return ({}, parallel.split(rows, -1)), len(rows), length
