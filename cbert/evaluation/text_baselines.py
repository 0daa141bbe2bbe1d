"""Baselines of masked tokens and of classification.

Legend: Q queries, V tokens of the vocabulary, T labels.
"""

import functools

import numpy as np
import scipy.sparse

from cbert.data.columns import Split
from cbert.data.records import TRAIN, VALIDATION
from cbert.evaluation.baselines import Load, by_column, predict_fractions
from cbert.evaluation.given_context import TUNING_EXAMPLES, GivenContext
from cbert.schema import PAD_ITEM, Schema
from cbert.tasks.masked_queries import EACH, ONE, ItemQueries, query_tokens
from cbert.tasks.prediction import Predictions
from cbert.tasks.ranking import log_fractions
from cbert.tasks.text_task import ExampleQueries

UNIGRAM, UNIGRAM_GIVEN_CONTEXT = "unigram", "unigram given context"
BIGRAM = "bigram interpolated"
MAJORITY, MAJORITY_GIVEN_CONTEXT = "majority", "majority given context"
INTERPOLATIONS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
_AT_ONCE = 256  # Queries whose probabilities of all tokens are held at once.


def of_tokens(
    load: Load, schema: Schema, split: Split, queries: ItemQueries
) -> dict[str, Predictions]:
    """How frequent each token is, alone, given the context, and given the tokens beside it."""
    train, validation = load(TRAIN), load(VALIDATION)
    if train is None:
        return {}
    observed = functools.partial(query_tokens, schema=schema, masking=EACH)
    tuned = functools.partial(query_tokens, schema=schema, masking=ONE)
    counts = np.bincount(observed(train).items, minlength=len(schema.items))
    ranked = {UNIGRAM: predict_fractions(log_fractions(counts), queries)}
    if schema.features:
        given = GivenContext(train, validation, schema, observed, tuned, counts)
        ranked[UNIGRAM_GIVEN_CONTEXT] = given.predict(split, queries)
    bigram = Bigram(train, counts)
    if validation is not None:
        bigram.tune(validation, tuned(validation))
    ranked[BIGRAM] = bigram.predict(split, queries)
    return by_column(ranked)


def of_labels(
    load: Load, schema: Schema, split: Split, queries: ExampleQueries
) -> dict[str, Predictions]:
    """The most frequent label, alone and given the context."""
    train, validation = load(TRAIN), load(VALIDATION)
    if train is None or schema.target is None:
        return {}
    counts = np.bincount(observed_labels(train).items, minlength=len(schema.target.values))
    if not counts.any():
        return {}
    log_probabilities = np.tile(log_fractions(counts), (len(queries), 1))
    labels = queries.targets["label"]
    classified = {MAJORITY: _classified(log_probabilities, labels)}
    if schema.features:
        given = GivenContext(
            train, validation, schema, observed_labels, observed_labels, counts
        )
        log_probabilities = given.log_probabilities(split, queries.rows)
        classified[MAJORITY_GIVEN_CONTEXT] = _classified(log_probabilities, labels)
    return classified


def observed_labels(split: Split) -> ItemQueries:
    """The labels of a split, as if each were the only item of its example."""
    rows = np.nonzero(split.targets["label"] >= 0)[0].astype(np.int32)
    return ItemQueries(rows, np.zeros_like(rows), split.targets["label"][rows], 0)


def _classified(log_probabilities: np.ndarray, labels: np.ndarray) -> Predictions:
    """The predictions of `Classification` from log-probabilities `[Q, T]`."""
    return {
        "log_probability": np.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0],
        "prediction": log_probabilities.argmax(axis=1),
        "probability": np.exp(log_probabilities.max(axis=1)),
    }


class Bigram:
    """A masked token given its two neighbours, by a Markov chain of interpolated bigrams.

    p(w | l, r) ~ p(w | l) p(r | w), where p(b | a) = x n_ab / n_a + (1 - x) p(b) and p(b) is
    the unigram. The interpolation x is tuned on the validation split. [CLS] and [SEP] are
    neighbours, too.
    """

    def __init__(self, train: Split, counts: np.ndarray) -> None:
        """Counts the pairs of the training split; `counts [V]` are those of its tokens."""
        vocabulary = len(counts)
        self._unigram = np.exp(log_fractions(counts)).astype(np.float32)
        left, right = train.items[:, :-1], train.items[:, 1:]
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
        self.interpolation = INTERPOLATIONS[2]

    def tune(self, validation: Split, queries: ItemQueries) -> None:
        """Chooses the interpolation of the lowest cross-entropy."""
        queries = queries.first(TUNING_EXAMPLES)
        self.interpolation = max(
            INTERPOLATIONS, key=lambda x: self.predict(validation, queries, x)[0].mean()
        )

    def predict(
        self, split: Split, queries: ItemQueries, interpolation: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The log-probability (nats) `float32 [Q]` and rank `int32 [Q]` of each query.

        They are those of an interpolation; None for the one chosen.
        """
        x = self.interpolation if interpolation is None else interpolation
        parts = [
            self._predict(split, queries, slice(start, start + _AT_ONCE), x)
            for start in range(0, len(queries), _AT_ONCE)
        ]
        log_probability, rank = (np.concatenate(part) for part in zip(*parts, strict=True))
        return log_probability, rank

    def _predict(
        self, split: Split, queries: ItemQueries, some: slice, x: float
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, positions = queries.rows[some], queries.positions[some]
        before, after = split.items[rows, positions - 1], split.items[rows, positions + 1]
        own = x * self._followed[before][:, None]
        forward = own * self._forward[before].toarray() + (1 - own) * self._unigram
        own = x * self._followed
        backward = own * self._backward[after].toarray()
        backward += (1 - own) * self._unigram[after][:, None]
        joint = forward * backward
        target = np.take_along_axis(joint, queries.items[some][:, None], axis=1)
        rank = (joint >= target).sum(axis=1)
        return np.log(target[:, 0] / joint.sum(axis=1)), rank.astype(np.int32)
