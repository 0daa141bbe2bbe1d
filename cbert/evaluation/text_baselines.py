"""Baselines of masked tokens and of classification.

Legend: Q queries, T labels.
"""

import functools

import numpy as np

from cbert.data.columns import Split
from cbert.data.records import TRAIN, VALIDATION
from cbert.evaluation.baselines import Load, by_column, predict_fractions
from cbert.evaluation.bigram import BIGRAM, Bigram
from cbert.evaluation.given_context import GivenContext
from cbert.schema import Schema
from cbert.tasks.masked_queries import EACH, ONE, ItemQueries, query_tokens
from cbert.tasks.prediction import Predictions
from cbert.tasks.ranking import log_fractions
from cbert.tasks.text_task import ExampleQueries

UNIGRAM, UNIGRAM_GIVEN_CONTEXT = "unigram", "unigram given context"
MAJORITY, MAJORITY_GIVEN_CONTEXT = "majority", "majority given context"


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
        given = GivenContext(train, validation, schema, counts, observed, tuned)
        ranked[UNIGRAM_GIVEN_CONTEXT] = given.predict(split, queries)
    bigram = Bigram(train.items, counts)
    if validation is not None:
        bigram.tune(validation.items, tuned(validation))
    ranked[BIGRAM] = bigram.predict(split.items, queries)
    return by_column(ranked)


def of_labels(
    load: Load, schema: Schema, split: Split, queries: ExampleQueries
) -> dict[str, Predictions]:
    """The most frequent label, alone and given the context."""
    train, validation = load(TRAIN), load(VALIDATION)
    if train is None:
        return {}
    size = len(schema.known_target.values)
    counts = np.bincount(observed_labels(train).items, minlength=size)
    if not counts.any():
        return {}
    log_probabilities = np.tile(log_fractions(counts), (len(queries), 1))
    labels = queries.targets["label"]
    classified = {MAJORITY: _classified(log_probabilities, labels)}
    if schema.features:
        given = GivenContext(
            train, validation, schema, counts, observed_labels, observed_labels
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
