"""A baseline of sets and sequences: which items occur beside the visible ones.

Legend: Q queries, M examples, L positions, V items.
"""

import numpy as np
import scipy.sparse

from cbert.data.columns import Split, evenly_spaced
from cbert.evaluation.given_context import TUNING_EXAMPLES, Observed
from cbert.tasks.masked_queries import ItemQueries, query_one

# How many imagined neighbours, distributed as popularity is, an item's own are smoothed with.
SMOOTHINGS = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
MOST_PAIRS = 50_000_000  # Of positions that are counted; 12 bytes each is what they may need.
MOST_SCORES = 2**23  # Scores of all items that are in memory at once.


class CoOccurrence:
    """p(i | R) = mean over j in R of (n_ij + s p(i)) / (n_j + s), with R the visible items.

    n_ij counts the pairs of positions of an example that hold i and j, n_j is its sum over i,
    and p(i) is popularity, which is left where nothing is visible. Of larger data, `MOST_PAIRS`
    are counted, of examples at equal distances. The smoothing s is the one of `SMOOTHINGS` with
    the least cross-entropy on the validation split, or the middle one where there is none.
    """

    def __init__(
        self,
        train: Split,
        validation: Split | None,
        log_popularity: np.ndarray,
        tuned: Observed = query_one,
    ) -> None:
        """Counts, and tunes on `tuned` where there is a validation split.

        log_popularity is `[V]`.
        """
        self._popularity = np.exp(log_popularity.astype(np.float64))
        pairs = np.square(train.lengths.astype(np.float64)).mean()
        counted = evenly_spaced(train, max(int(MOST_PAIRS / max(pairs, 1)), 1))
        present = self._present(counted.items)
        itself = scipy.sparse.diags_array(present.sum(axis=0))
        self._pairs = (present.T @ present - itself).tocsr()
        self._totals = self._pairs.sum(axis=1)
        self.smoothing = SMOOTHINGS[len(SMOOTHINGS) // 2]
        if validation is not None:
            few = evenly_spaced(validation, TUNING_EXAMPLES)
            if len(queries := tuned(few)):
                self.smoothing = max(
                    SMOOTHINGS, key=lambda s: self.predict(few, queries, s)[0].mean()
                )

    def predict(
        self, split: Split, queries: ItemQueries, smoothing: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The log-probability (nats) `float32 [Q]` and rank `int32 [Q]` of each query.

        They are those of a smoothing; None for the one chosen.
        """
        log_probability = np.zeros(len(queries), np.float32)
        rank = np.zeros(len(queries), np.int32)
        size = max(MOST_SCORES // len(self._popularity), 1)
        for start in range(0, len(queries), size):
            part = slice(start, start + size)
            probabilities = self.probabilities(
                split, queries.rows[part], queries.positions[part], smoothing
            )
            own = np.take_along_axis(probabilities, queries.items[part, None], axis=1)
            log_probability[part] = np.log(own[:, 0])
            rank[part] = (probabilities >= own).sum(axis=1)
        return log_probability, rank

    def probabilities(
        self,
        split: Split,
        rows: np.ndarray,
        positions: np.ndarray,
        smoothing: float | None = None,
    ) -> np.ndarray:
        """p(i | R) of all items, where one position of each row is masked, `float64 [Q, V]`."""
        s = self.smoothing if smoothing is None else smoothing
        items = np.array(split.items[rows])
        items[np.arange(len(items)), positions] = -1
        visible = self._present(items)
        each = 1 / np.maximum(visible.sum(axis=1), 1)
        weights = visible * each[:, None] / (self._totals + s)
        # The shares of all items' neighbours sum to one with that of popularity.
        popular = 1 - weights @ self._totals
        return (weights @ self._pairs).toarray() + popular[:, None] * self._popularity

    def _present(self, items: np.ndarray) -> scipy.sparse.csr_array:
        """How often each example `[M, L]` has each item, `float64 [M, V]`."""
        rows, positions = np.nonzero(items >= 0)
        ones, shape = np.ones(len(rows)), (len(items), len(self._popularity))
        return scipy.sparse.csr_array((ones, (rows, items[rows, positions])), shape)
