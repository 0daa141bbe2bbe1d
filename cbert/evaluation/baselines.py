"""Baselines that a model must beat: popularity, alone and given the context or the items.

Legend: Q queries, V items.
"""

from collections.abc import Callable, Mapping

import numpy as np

from cbert.data import prepared
from cbert.data.columns import Split
from cbert.data.records import TRAIN, VALIDATION
from cbert.evaluation import bigram
from cbert.evaluation.co_occurrence import CoOccurrence
from cbert.evaluation.given_context import GivenContext
from cbert.schema import SEQUENCE, Schema
from cbert.tasks.masked_queries import ItemQueries, query_each, query_last, query_one
from cbert.tasks.prediction import Predictions
from cbert.tasks.ranking import log_fractions

POPULARITY = "popularity"
GIVEN_CONTEXT = "popularity given context"
CO_OCCURRENCE = "co-occurrence"
# The exact posterior of a synthetic data set: no model can be better, except by chance.
BAYES_OPTIMAL = "Bayes-optimal"
# The same of a model that does not see the context. Its ranks are not known.
WITHOUT_CONTEXT = "Bayes-optimal without context"
OPTIMA = WITHOUT_CONTEXT, BAYES_OPTIMAL


def column_prefix(name: str) -> str:
    """The prefix of a baseline's columns in `eval/<split>.parquet`."""
    return name.lower().replace(" ", "_").replace("-", "_") + "_"


Load = Callable[[str], Split | None]  # A split by its name; None where there is none.


def loader(data_dir: str, name: str, schema: Schema) -> Load:
    """What loads the splits of a prepared data set."""
    known = prepared.split_names(data_dir, name)

    def load(split: str) -> Split | None:
        return prepared.load(data_dir, name, split, schema) if split in known else None

    return load


def of_items(
    load: Load, schema: Schema, split: Split, queries: ItemQueries
) -> dict[str, Predictions]:
    """Popularity, alone and given the context, neighbours, and what is possible at best."""
    train, validation = load(TRAIN), load(VALIDATION)
    counts = np.array(schema.counts)
    if train is not None:  # A schema of other data has their counts.
        counts = np.bincount(query_each(train).items, minlength=len(schema.items))
    log_popularity = log_fractions(counts)
    ranked = {POPULARITY: predict_fractions(log_popularity, queries)}
    if train is not None:
        tuned = query_last if _asks_last(schema, split, queries) else query_one
        if schema.features:
            given = GivenContext(train, validation, schema, counts, tuned=tuned)
            ranked[GIVEN_CONTEXT] = given.predict(split, queries)
        beside = CoOccurrence(train, validation, log_popularity, tuned)
        ranked[CO_OCCURRENCE] = beside.predict(split, queries)
        if schema.kind == SEQUENCE:
            ranked[bigram.BIGRAM] = bigram.of_sequences(
                train, validation, split, queries, len(schema.items), tuned
            )
    return by_column(ranked) | optima(split, queries)


def _asks_last(schema: Schema, split: Split, queries: ItemQueries) -> bool:
    """Whether all queries are about the last items of sequences."""
    ends = split.lengths[queries.rows] - 1
    return schema.kind == SEQUENCE and bool((queries.positions == ends).all())


def by_column(ranked: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Predictions]:
    """Log-probability and rank of each baseline, each `[Q]`, by the names of their columns."""
    return {
        name: {"log_probability": log_probability, "rank": rank}
        for name, (log_probability, rank) in ranked.items()
    }


def optima(split: Split, queries: ItemQueries) -> dict[str, Predictions]:
    """The best possible predictions without and with the context, as far as they are known."""
    if split.reference is None:
        return {}
    known = {
        name: values[queries.rows, queries.positions]
        for name, values in split.reference.items()
    }
    without_context = known.pop("without_context")
    if np.isnan(without_context).any():
        return {BAYES_OPTIMAL: known}
    return {WITHOUT_CONTEXT: {"log_probability": without_context}, BAYES_OPTIMAL: known}


def predict_fractions(
    log_popularity: np.ndarray, queries: ItemQueries
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probability (nats) `[Q]` and rank `[Q]` by popularity, log p(i) `[V]`, alone."""
    ordered = np.sort(log_popularity)
    ahead = len(ordered) - np.searchsorted(ordered, log_popularity, side="left")
    return log_popularity[queries.items], ahead[queries.items].astype(np.int32)
