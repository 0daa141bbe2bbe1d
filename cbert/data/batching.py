"""The examples of each step's batch, and the length that they are padded to.

Legend: B examples of the global batch, M examples of the split.
"""

import functools

import numpy as np

from cbert.data.random_streams import stream
from cbert.errors import UserError

# Steps of one padded length that follow each other, so that one dispatch can take them.
BLOCK = 8
MOST_BUCKETS = 8  # Padded lengths of a split; each is a program to compile.


class Batches:
    """The rows of each step's batch, a function of (seed, step).

    An epoch sorts its examples by length and cuts them into batches, so that little is spent on
    padding, and shuffles the batches in blocks of one padded length. What a step is padded to
    depends on the data set and the step alone; the seed decides which examples of that length
    fill it. Those that do not fill a last batch are left out, other ones in each epoch.

    Args:
      lengths: `int32 [M]`, the items or tokens of each example.
      batch_size: B.
      seed: Decides which examples of a length fill a step.
      buckets: The most padded lengths.

    Raises:
      UserError: there are fewer than B examples.
    """

    def __init__(
        self, lengths: np.ndarray, batch_size: int, seed: int, buckets: int = MOST_BUCKETS
    ) -> None:
        if len(lengths) < batch_size:
            raise UserError(
                f"train.batch_size is {batch_size}, the training split has {len(lengths)} "
                "examples; set train.batch_size=N, a smaller one"
            )
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._bounds = bucket_bounds(lengths, buckets)
        self.steps_per_epoch = len(lengths) // batch_size
        self._epoch = functools.lru_cache(maxsize=2)(self._make_epoch)

    def __call__(self, step: int) -> tuple[np.ndarray, int]:
        """The rows `int32 [B]` of a step (counted from 0) and its padded length."""
        epoch, index = divmod(step, self.steps_per_epoch)
        rows, lengths = self._epoch(epoch)
        return rows[index], int(lengths[index])

    def several(self, step: int, most: int) -> tuple[np.ndarray, int]:
        """The rows of `most` steps, `int32 [most, B]`, if they have one padded length, else of
        the first alone, `[1, B]`; and that length.
        """
        batches = [self(number) for number in range(step, step + most)]
        rows, lengths = zip(*batches, strict=True)
        count = most if len(set(lengths)) == 1 else 1
        return np.stack(rows[:count]), lengths[0]

    def _make_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        kept = self.steps_per_epoch * self._batch_size
        shared = stream("epoch", epoch)
        chosen = shared.permutation(len(self._lengths))[:kept]
        own = stream("examples", self._seed, epoch).permutation(len(self._lengths))
        # The seed permutes examples of one length among each other, so the lengths stay sorted.
        order = np.lexsort((own[chosen], self._lengths[chosen]))
        rows = chosen[order].reshape(self.steps_per_epoch, self._batch_size)
        longest = self._lengths[rows[:, -1]]
        padded = self._bounds[np.searchsorted(self._bounds, longest)]
        blocks = _blocks(shared.permutation(len(padded)), padded)
        shuffled = np.concatenate([blocks[index] for index in shared.permutation(len(blocks))])
        return rows[shuffled].astype(np.int32), padded[shuffled]


def rows_of_seeds(batches: list[Batches], step: int, most: int) -> tuple[np.ndarray, int]:
    """The rows of `most` steps of every seed, or of one step, and their padded length."""
    rows, lengths = zip(*(own.several(step, most) for own in batches), strict=True)
    return (np.stack(rows, axis=1) if len(rows) > 1 else rows[0]), lengths[0]


def _blocks(steps: np.ndarray, padded: np.ndarray) -> list[np.ndarray]:
    """The steps in blocks of at most `BLOCK` of one padded length."""
    blocks = []
    for length in np.unique(padded):
        inside = steps[padded[steps] == length]
        blocks += np.split(inside, np.arange(BLOCK, len(inside), BLOCK))
    return blocks


def bucket_bounds(lengths: np.ndarray, buckets: int, batch_size: int = 1) -> np.ndarray:
    """At most `buckets` padded lengths of examples of `lengths [M]`, with the least padding.

    They ascend, and the last is that of the longest example. Each bucket fills whole batches
    of `batch_size` examples, so that few examples have few buckets.

    Dynamic programming over the lengths that occur; `cells[first, last]` is what a bucket
    of all lengths from the first to the last fills, padding included.
    """
    values, counts = np.unique(lengths, return_counts=True)
    shorter = np.concatenate([[0], np.cumsum(counts)])
    inside = np.maximum(shorter[None, 1:] - shorter[:-1, None], 0).astype(np.float64)
    cells = values * np.ceil(inside / batch_size) * batch_size
    cells[np.tril_indices(len(values), -1)] = np.inf
    best, bounds = cells[0], [[value] for value in values]
    for _ in range(buckets - 1):
        total = np.concatenate([[0.0], best[:-1]])[:, None] + cells
        first = total.argmin(axis=0)
        bounds = [
            [*bounds[start - 1], value] if start else [value]
            for start, value in zip(first, values, strict=True)
        ]
        best = total.min(axis=0)
    return np.array(bounds[-1])
