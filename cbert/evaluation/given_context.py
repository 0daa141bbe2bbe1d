"""The baseline that knows the context: how often each item occurs with each value of it.

Legend: Q queries, V items, K feature values.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from cbert.data.columns import Split
from cbert.data.padding import joined, padded_batches
from cbert.model.scoring import score
from cbert.schema import Feature, Schema
from cbert.tasks.masked_queries import ItemQueries, query_each, query_one
from cbert.tasks.ranking import log_fractions

# The items of a split that a baseline counts, as queries.
Observed = Callable[[Split], ItemQueries]

SMOOTHINGS = (1.0, 3.0, 10.0, 30.0, 100.0)
EXPONENTS = (0.25, 0.5, 0.75, 1.0)
TUNING_EXAMPLES = 2000
# Each value needs a count for every item, so a feature has at most this many.
MOST_VALUES = 256


class GivenContext:
    """Popularity given the context.

    p(i | c) ~ p(i) * (prod_v r(i, v))^e over the observed values v of all features, where
    r(i, v) = (n_iv + s) / (n_i N_v / N + s) says how much more often i occurs with v than it
    would by chance. The ratio is one for a missing value, for an unknown value, and for a value
    that is not among the `MOST_VALUES` most frequent of its feature. Numbers are counted by
    their bins, and features without values to list, such as vectors, are left out. The
    smoothing s and the exponent e are tuned on the validation split.
    """

    def __init__(
        self,
        train: Split,
        validation: Split | None,
        schema: Schema,
        counts: Sequence[int] | np.ndarray,
        observed: Observed = query_each,
        tuned: Observed = query_one,
    ) -> None:
        """Counts, and tunes where there is a validation split.

        Args:
          train, validation: The splits.
          schema: The schema.
          counts: How often each item occurs in the training split, `[V]`.
          observed: The items that are counted in the training split.
          tuned: The queries about the validation split that it is tuned on.
        """
        self._features = [f for f in schema.features if f.discrete]
        self._tuned = tuned
        self._log_popularity = log_fractions(counts)
        self._counts, self._expected = self._count(train, observed(train))
        self.smoothing, self.exponent = SMOOTHINGS[2], EXPONENTS[1]
        if validation is not None and self._counts.shape[0]:
            self._tune(validation)

    def log_probabilities(self, split: Split, rows: np.ndarray) -> np.ndarray:
        """log p(i | c) of every item given the context of each row, `float32 [Q, V]`."""
        table = self.exponent * self._log_ratios(self.smoothing)
        logits = indicator(self._features, split)(rows) @ table + self._log_popularity
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)

    def predict(self, split: Split, queries: ItemQueries) -> tuple[np.ndarray, np.ndarray]:
        """The log-probability (nats) `float32 [Q]` and rank `int32 [Q]` of each query."""
        table = self.exponent * self._log_ratios(self.smoothing)
        return predict_linear(
            indicator(self._features, split), table, self._log_popularity, queries
        )

    def _tune(self, validation: Split) -> None:
        queries = self._tuned(validation).first(TUNING_EXAMPLES)
        if not len(queries):
            return
        indicate = indicator(self._features, validation)
        best = np.inf
        for smoothing in SMOOTHINGS:
            ratios = self._log_ratios(smoothing)
            for exponent in EXPONENTS:
                log_probability, _ = predict_linear(
                    indicate, exponent * ratios, self._log_popularity, queries
                )
                if -log_probability.mean() < best:
                    best = -log_probability.mean()
                    self.smoothing, self.exponent = smoothing, exponent

    def _log_ratios(self, smoothing: float) -> np.ndarray:
        """log r, `float32 [K, V]`."""
        return np.log((self._counts + smoothing) / (self._expected + smoothing))

    def _count(self, train: Split, queries: ItemQueries) -> tuple[np.ndarray, np.ndarray]:
        """n_iv and n_i N_v / N, each `float32 [K, V]`."""
        rows, items, vocabulary = queries.rows, queries.items, len(self._log_popularity)
        tables = [np.zeros((0, vocabulary), np.float32)]
        for values, size in _observed(self._features, train):
            table = np.zeros((size + 1) * vocabulary, np.float32)
            for column in values.T.astype(np.int64):
                table += np.bincount(column[rows] * vocabulary + items, minlength=table.size)
            tables.append(table.reshape(size + 1, vocabulary)[1:])
        counts = np.concatenate(tables)
        totals = np.bincount(items, minlength=vocabulary)
        fraction = counts.sum(axis=1, keepdims=True) / max(len(items), 1)
        return counts, (fraction * totals).astype(np.float32)


def _observed(features: Sequence[Feature], split: Split) -> list[tuple[np.ndarray, int]]:
    """The levels that examples show, and their number, for each feature."""
    return [feature.levels(split.context[feature.name], MOST_VALUES) for feature in features]


def indicator(features: Sequence[Feature], split: Split) -> Callable[[np.ndarray], np.ndarray]:
    """A function from rows of the split to `float32 [rows, K]`, 1 for observed values.

    The features are discrete.
    """
    observed = _observed(features, split)

    def indicate(rows: np.ndarray) -> np.ndarray:
        parts = [np.zeros((len(rows), 0), np.float32)]
        for values, size in observed:
            part = np.zeros((len(rows), size + 1), np.float32)
            np.put_along_axis(part, values[rows], 1.0, axis=1)
            parts.append(part[:, 1:])
        return np.concatenate(parts, axis=1)

    return indicate


_score = jax.jit(score)


def predict_linear(
    indicate: Callable[[np.ndarray], np.ndarray],
    table: np.ndarray,
    bias: np.ndarray,
    queries: ItemQueries,
) -> tuple[np.ndarray, np.ndarray]:
    """Predicts from the logits indicate(rows) @ table + bias; table `[K, V]`, bias `[V]`."""
    weights, offsets = jnp.asarray(table.T, jnp.float32), jnp.asarray(bias)

    def scored(indices: np.ndarray) -> tuple[jax.Array, jax.Array]:
        x = indicate(queries.rows[indices])
        return _score(x, weights, offsets, queries.items[indices])

    batches = padded_batches(len(queries), [256])
    return joined((scored(indices), count) for indices, count in batches)
