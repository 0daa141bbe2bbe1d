"""A baseline of sequences and texts: which items, or tokens, stand beside the masked one.

Legend: Q queries, M examples, L positions, V items or tokens.
"""

import dataclasses

import numpy as np
import scipy.sparse

from cbert.data.columns import Split, evenly_spaced
from cbert.evaluation.co_occurrence import MOST_PAIRS, MOST_SCORES
from cbert.evaluation.given_context import TUNING_EXAMPLES, Observed
from cbert.schema import PAD_ITEM, UNKNOWN_ITEM
from cbert.tasks.masked_queries import ItemQueries, query_one
from cbert.tasks.ranking import log_fractions

BIGRAM = "bigram interpolated"
# Of few sequences, whose items hardly ever follow each other twice, a small one is the best.
INTERPOLATIONS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
UNTUNED = 0.6


def of_sequences(
    train: Split,
    validation: Split | None,
    split: Split,
    queries: ItemQueries,
    vocabulary: int,
    tuned: Observed = query_one,
) -> tuple[np.ndarray, np.ndarray]:
    """The bigram's predictions of items of sequences, whose beginning counts as an item.

    The end says nothing of the item before it: where histories are cut, it is anywhere.

    Args:
      train: The training split, of which as many examples count as have `MOST_PAIRS` pairs.
      validation: The split that tunes it; None for `UNTUNED`.
      split: The split that is evaluated.
      queries: The queries about it.
      vocabulary: V, real items.
      tuned: The queries about the validation split that it is tuned on.

    Returns:
      Log-probability (nats) `float32 [Q]` and rank `int32 [Q]`.
    """
    counted = evenly_spaced(train, max(MOST_PAIRS // (train.items.shape[1] + 1), 1))
    tokens = _with_ends(counted, vocabulary)
    counts = np.bincount(tokens[tokens != PAD_ITEM], minlength=vocabulary + 3)
    bigram = Bigram(tokens, counts, candidates=vocabulary, silent=vocabulary + 2)
    if validation is not None and len(asked := tuned(validation)):
        bigram.tune(_with_ends(validation, vocabulary), _after_beginning(asked))
    return bigram.predict(_with_ends(split, vocabulary), _after_beginning(queries))


def _with_ends(split: Split, vocabulary: int) -> np.ndarray:
    """`int32 [M, L + 2]`: V for unknown items, V + 1 for the beginning, V + 2 for the end."""
    count, length = split.items.shape
    tokens = np.full((count, length + 2), PAD_ITEM, np.int32)
    tokens[:, 1:-1] = np.where(split.items == UNKNOWN_ITEM, vocabulary, split.items)
    tokens[:, 0] = vocabulary + 1
    tokens[np.arange(count), split.lengths + 1] = vocabulary + 2
    return tokens


def _after_beginning(queries: ItemQueries) -> ItemQueries:
    return dataclasses.replace(queries, positions=queries.positions + 1)


class Bigram:
    """A masked token given its two neighbours, by a Markov chain of interpolated bigrams.

    p(w | l, r) ~ p(w | l) p(r | w), where p(b | a) = x n_ab / n_a + (1 - x) p(b) and p(b) is
    the unigram. The interpolation x is tuned on the validation split.
    """

    def __init__(
        self,
        train: np.ndarray,
        counts: np.ndarray,
        candidates: int | None = None,
        silent: int | None = None,
    ) -> None:
        """Counts the pairs of the training split.

        Args:
          train: `int32 [M, L]`, tokens of each example, its beginning and its end among them.
          counts: `[V]`, how often each token occurs, for the unigram.
          candidates: How many tokens, the first ones, may be masked; None for all.
          silent: A token that says nothing of the one before it; None where there is none.
        """
        vocabulary = len(counts)
        self._candidates = vocabulary if candidates is None else candidates
        self._silent = silent
        self._unigram = np.exp(log_fractions(counts)).astype(np.float32)
        left, right = train[:, :-1], train[:, 1:]
        inside = right != PAD_ITEM
        pairs = scipy.sparse.coo_array(
            # float32 would count to 2^24 alone.
            (np.ones(inside.sum()), (left[inside], right[inside])),
            shape=(vocabulary, vocabulary),
        ).tocsr()
        totals = np.asarray(pairs.sum(axis=1)).ravel()
        scale = scipy.sparse.diags_array(1 / np.maximum(totals, 1))
        self._forward = (scale @ pairs).tocsr().astype(np.float32)
        self._backward = self._forward.T.tocsr()
        # A token that nothing follows in the training split leaves all weight to the unigram.
        self._followed = (totals > 0).astype(np.float32)
        self.interpolation = UNTUNED

    def tune(self, validation: np.ndarray, queries: ItemQueries) -> None:
        """Chooses the interpolation of the lowest cross-entropy."""
        queries = queries.first(TUNING_EXAMPLES)
        self.interpolation = max(
            INTERPOLATIONS, key=lambda x: self.predict(validation, queries, x)[0].mean()
        )

    def predict(
        self, tokens: np.ndarray, queries: ItemQueries, interpolation: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The log-probability (nats) `float32 [Q]` and rank `int32 [Q]` of each query.

        They are those of an interpolation; None for the one chosen. Rows and positions of the
        queries are those of `tokens [M, L]`.
        """
        x = self.interpolation if interpolation is None else interpolation
        size = max(MOST_SCORES // len(self._unigram), 1)
        parts = [
            self._predict(tokens, queries, slice(start, start + size), x)
            for start in range(0, len(queries), size)
        ]
        log_probability, rank = (np.concatenate(part) for part in zip(*parts, strict=True))
        return log_probability, rank

    def _predict(
        self, tokens: np.ndarray, queries: ItemQueries, some: slice, x: float
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, positions = queries.rows[some], queries.positions[some]
        before, after = tokens[rows, positions - 1], tokens[rows, positions + 1]
        own = x * self._followed[before][:, None]
        forward = own * self._forward[before].toarray() + (1 - own) * self._unigram
        own = x * self._followed
        backward = own * self._backward[after].toarray()
        backward += (1 - own) * self._unigram[after][:, None]
        if self._silent is not None:
            backward[after == self._silent] = 1
        joint = (forward * backward)[:, : self._candidates]
        target = np.take_along_axis(joint, queries.items[some][:, None], axis=1)
        rank = (joint >= target).sum(axis=1)
        return np.log(target[:, 0] / joint.sum(axis=1)), rank.astype(np.int32)
