"""Baselines of tagging, spans, numbers and several labels.

Legend: Q queries, T tags or labels, K feature values.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from cbert.data.columns import Split
from cbert.data.records import TRAIN, VALIDATION
from cbert.data.text_records import Text
from cbert.evaluation.baselines import Load
from cbert.evaluation.given_context import SMOOTHINGS, GivenContext, indicator
from cbert.schema import Schema
from cbert.spans import in_passage
from cbert.tasks.masked_queries import ItemQueries, eligible
from cbert.tasks.prediction import Predictions
from cbert.tasks.ranking import log_fractions
from cbert.tasks.text_task import ExampleQueries

FREQUENT_TAG, FREQUENT_TAG_GIVEN_CONTEXT = "frequent tag", "frequent tag given context"
NO_ANSWER, FIRST_TOKENS = "no answer", "first tokens"
MEAN, MEAN_GIVEN_CONTEXT = "mean", "mean given context"
LABEL_FREQUENCY = "label frequency"
_AT_ONCE = 2**14  # Words or examples whose rows are held at once.


def of_tags(
    load: Load, schema: Schema, split: Split, queries: ExampleQueries
) -> dict[str, Predictions]:
    """The most frequent tag of each word, alone and given the context."""
    train, validation = load(TRAIN), load(VALIDATION)
    if train is None:
        return {}
    tags = FrequentTags(train, schema)
    if not tags.counts.any():
        return {}
    tagged = {FREQUENT_TAG: tags.predict(split, queries)}
    if schema.features:
        given = GivenContext(
            train, validation, schema, tags.counts, observed_tags, observed_tags
        )
        ratios = given.log_probabilities(split, queries.rows) - log_fractions(tags.counts)
        tagged[FREQUENT_TAG_GIVEN_CONTEXT] = tags.predict(split, queries, ratios)
    return tagged


def observed_tags(split: Split) -> ItemQueries:
    """The tags of a split, as if they were the items of its examples."""
    tags = split.token_columns["tags"]
    rows, positions = (part.astype(np.int32) for part in np.nonzero(tags >= 0))
    return ItemQueries(rows, positions, tags[rows, positions], 0)


class FrequentTags:
    """The most frequent tag of each word in the training split.

    p(t | w) = (n_wt + p(t)) / (n_w + 1), where p(t) is how frequent the tag is at all, so that
    it alone decides for a word that training has not. Given the context, p(t | w, c) ~ p(t | w)
    p(t | c) / p(t), where p(t | c) is that of `GivenContext`.

    Attributes:
      counts: How often each tag occurs, `[T]`.
    """

    def __init__(self, train: Split, schema: Schema) -> None:
        assert schema.tokenizer is not None
        self._lowercase = schema.tokenizer.lowercase
        self._codes: dict[str, int] = {}
        rows = np.arange(len(train), dtype=np.int32)
        starts = train.token_columns["word_starts"]
        row, position, words = self._words(train, rows, starts)
        codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
        tags = train.token_columns["tags"][row, position]
        known = tags >= 0
        size = len(schema.known_target.values)
        self.counts = np.bincount(tags[known], minlength=size)
        cells = np.ones(known.sum(), np.float32), (np.array(codes)[known], tags[known])
        # The last row is that of words that training has not.
        shape = len(self._codes) + 1, size
        self._table = scipy.sparse.coo_array(cells, shape=shape).tocsr()

    def _words(
        self, split: Split, rows: np.ndarray, word_starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Each word's index in `rows`, its first token's position, and the word."""
        index, positions = np.nonzero(word_starts >= 0)
        words = []
        bounds = np.searchsorted(index, np.arange(len(rows) + 1))
        for number, row in enumerate(rows):
            own = Text.from_json(split.texts[row]).words or []
            inside = slice(bounds[number], bounds[number + 1])
            words += [own[n] for n in word_starts[number, positions[inside]]]
        if self._lowercase:
            words = [word.lower() for word in words]
        return index, positions, words

    def predict(
        self, split: Split, queries: ExampleQueries, log_ratios: np.ndarray | None = None
    ) -> Predictions:
        """The predictions of `Tagging`; `log_ratios` `[Q, T]` are log p(t | c) / p(t)."""
        starts, true = queries.targets["word_starts"], queries.targets["tags"]
        index, positions, words = self._words(split, queries.rows, starts)
        unknown = len(self._codes)
        codes = np.array([self._codes.get(word, unknown) for word in words])
        tags, nats = np.full_like(true, -1), np.zeros(len(queries))
        for first in range(0, len(codes), _AT_ONCE):
            inside = slice(first, first + _AT_ONCE)
            row, position = index[inside], positions[inside]
            scores = self._log_probabilities(codes[inside])
            if log_ratios is not None:
                scores = scores + log_ratios[row]
                scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
            tags[row, position] = scores.argmax(axis=1)
            own = true[row, position]
            each = np.take_along_axis(scores, np.maximum(own, 0)[:, None], axis=1)[:, 0]
            nats += np.bincount(row, np.where(own >= 0, each, 0), len(queries))
        return {"log_probability": nats / np.maximum(queries.weights, 1), "tags": tags}

    def _log_probabilities(self, codes: np.ndarray) -> np.ndarray:
        """log p(t | w) of some words, `[n, T]`."""
        counts = self._table[codes].toarray()
        prior = np.exp(log_fractions(self.counts))
        return np.log((counts + prior) / (counts.sum(axis=1, keepdims=True) + 1))


def of_spans(
    load: Load, schema: Schema, split: Split, queries: ExampleQueries
) -> dict[str, Predictions]:
    """None, and the first tokens of a passage, as many as the median answer has."""
    zeros = np.zeros(len(queries), np.int32)
    spans: dict[str, Predictions] = {NO_ANSWER: {"start": zeros, "end": zeros}}
    train = load(TRAIN)
    if train is not None and (answered := train.targets["end"] > 0).any():
        lengths = (train.targets["end"] - train.targets["start"] + 1)[answered]
        items = split.items[queries.rows]
        segments = split.token_columns["segments"][queries.rows]
        searched = in_passage(segments, eligible(items, schema))
        start, present = searched.argmax(axis=1), searched.any(axis=1)
        last = items.shape[1] - 1 - searched[:, ::-1].argmax(axis=1)
        end = np.minimum(start + int(np.median(lengths)) - 1, last)
        spans[FIRST_TOKENS] = {
            "start": np.where(present, start, 0),
            "end": np.where(present, end, 0),
        }
    return spans


def of_numbers(
    load: Load, schema: Schema, split: Split, queries: ExampleQueries
) -> dict[str, Predictions]:
    """The mean, and a ridge regression on the values of the context's features."""
    train, validation = load(TRAIN), load(VALIDATION)
    if train is None or not np.isfinite(train.targets["number"]).any():
        return {}
    mean = float(np.nanmean(train.targets["number"], dtype=np.float64))
    numbers = {MEAN: {"prediction": np.full(len(queries), mean)}}
    features = [feature for feature in schema.features if feature.discrete]
    if features:
        tuned = validation is not None and np.isfinite(validation.targets["number"]).any()
        smoothings = SMOOTHINGS if tuned else SMOOTHINGS[2:3]
        weights = _ridge(indicator(features, train), train.targets["number"], mean, smoothings)
        if validation is not None and tuned:
            errors = [_errors(features, validation, one, mean) for one in weights]
            weights = [weights[int(np.argmin(errors))]]
        given = _linear(indicator(features, split), queries.rows, weights[0], mean)
        numbers[MEAN_GIVEN_CONTEXT] = {"prediction": given}
    return numbers


def _ridge(
    indicate: Callable, numbers: np.ndarray, mean: float, smoothings: tuple[float, ...]
) -> list[np.ndarray]:
    """The weights `[K + 1]` for each smoothing, the last one a bias, which is not penalised."""
    rows = np.nonzero(np.isfinite(numbers))[0]
    squares: Any = 0.0
    products: Any = 0.0
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        x = _with_bias(indicate(some))
        squares = squares + x.T @ x
        products = products + x.T @ (numbers[some] - mean)
    penalised = np.diag(np.append(np.ones(len(squares) - 1), 1e-6))
    return [np.linalg.solve(squares + one * penalised, products) for one in smoothings]


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.hstack([x, np.ones((len(x), 1))])


def _linear(
    indicate: Callable, rows: np.ndarray, weights: np.ndarray, mean: float
) -> np.ndarray:
    parts = [
        _with_bias(indicate(rows[first : first + _AT_ONCE])) @ weights
        for first in range(0, len(rows), _AT_ONCE)
    ]
    return mean + np.concatenate(parts)


def _errors(features: list, split: Split, weights: np.ndarray, mean: float) -> float:
    """The mean squared error on a split."""
    rows = np.nonzero(np.isfinite(split.targets["number"]))[0]
    predicted = _linear(indicator(features, split), rows, weights, mean)
    return float(((predicted - split.targets["number"][rows]) ** 2).mean())


def of_label_lists(
    load: Load, schema: Schema, split: Split, queries: ExampleQueries
) -> dict[str, Predictions]:
    """Each label with the frequency that it has in the training split."""
    train = load(TRAIN)
    if train is None:
        return {}
    labels = train.targets["labels"]
    known = labels[labels[:, 0] >= 0]
    if not len(known):
        return {}
    frequency = (known.sum(axis=0) + 0.5) / (len(known) + 1)
    probability = np.tile(frequency, (len(queries), 1))
    true = queries.targets["labels"] > 0
    nats = np.log(np.where(true, probability, 1 - probability)).sum(axis=1)
    return {LABEL_FREQUENCY: {"log_probability": nats, "probability": probability}}
