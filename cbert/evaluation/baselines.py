"""What a model must beat: popularity, and popularity given the context.

Legend: Q questions, M examples, V items, K feature values.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cbert.data.source import Split
from cbert.evaluation.questions import Questions, ask_one
from cbert.model.cross_entropy import score
from cbert.schema import NUMERICAL, SPECIAL_VALUES, VECTOR, Feature, Schema

SMOOTHINGS = (1.0, 3.0, 10.0, 30.0, 100.0)
EXPONENTS = (0.25, 0.5, 0.75, 1.0)
TUNING_SETS = 2000
MOST_VALUES = 256  # Of a feature: each has a count for every item.


def popularity(schema: Schema) -> np.ndarray:
    """log p(i) `float32 [V]`, p(i) = (n_i + 1/2) / (N + V/2) with the schema's counts."""
    counts = np.array(schema.counts) + 0.5
    return np.log(counts / counts.sum()).astype(np.float32)


class GivenContext:
    """Popularity given the context.

    p(i | c) ~ p(i) * (prod_v r(i, v))^e over the observed values v of all features, with
    r(i, v) = (n_iv + s) / (n_i N_v / N + s): how much more often i occurs with v than it
    would by chance. Missing and unknown values count one, and so do those of a feature beyond
    its `MOST_VALUES` most frequent. Numbers count by their bins; vectors are left out. The
    smoothing s and the exponent e are tuned on validation.
    """

    def __init__(self, train: Split, validation: Split | None, schema: Schema) -> None:
        self._features = [f for f in schema.features if f.kind != VECTOR]
        self._log_popularity = popularity(schema)
        self._counts, self._expected = self._count(train)
        self.smoothing, self.exponent = SMOOTHINGS[2], EXPONENTS[1]
        if validation is not None and self._counts.shape[0]:
            self._tune(validation)

    def answer(self, split: Split, questions: Questions) -> tuple[np.ndarray, np.ndarray]:
        """Log-probability (nats) and rank of each question."""
        table = self.exponent * self._log_ratios(self.smoothing)
        return answer_linear(self._indicator(split), table, self._log_popularity, questions)

    def _tune(self, validation: Split) -> None:
        questions = ask_one(validation)
        first = slice(0, TUNING_SETS)
        questions = Questions(
            questions.rows[first], questions.places[first], questions.items[first], 0
        )
        indicator = self._indicator(validation)
        best = np.inf
        for smoothing in SMOOTHINGS:
            ratios = self._log_ratios(smoothing)
            for exponent in EXPONENTS:
                found, _ = answer_linear(
                    indicator, exponent * ratios, self._log_popularity, questions
                )
                if -found.mean() < best:
                    best, self.smoothing, self.exponent = -found.mean(), smoothing, exponent

    def _log_ratios(self, smoothing: float) -> np.ndarray:
        """log r `float32 [K, V]`."""
        return np.log((self._counts + smoothing) / (self._expected + smoothing))

    def _count(self, train: Split) -> tuple[np.ndarray, np.ndarray]:
        """n_iv and n_i N_v / N, each `float32 [K, V]`."""
        rows, columns = np.nonzero(train.items >= 0)
        items, vocabulary = train.items[rows, columns], len(self._log_popularity)
        tables = [np.zeros((0, vocabulary), np.float32)]
        for places, size in self._shown(train):
            table = np.zeros((size + 1) * vocabulary, np.float32)
            for column in places.T.astype(np.int64):
                table += np.bincount(column[rows] * vocabulary + items, minlength=table.size)
            tables.append(table.reshape(size + 1, vocabulary)[1:])
        counts = np.concatenate(tables)
        totals = np.bincount(items, minlength=vocabulary)
        share = counts.sum(axis=1, keepdims=True) / len(items)
        return counts, (share * totals).astype(np.float32)

    def _shown(self, split: Split) -> list[tuple[np.ndarray, int]]:
        return [_shown(feature, split.context[feature.name]) for feature in self._features]

    def _indicator(self, split: Split) -> Callable[[np.ndarray], np.ndarray]:
        """Rows of the split to `float32 [rows, K]`: 1 where an example shows a value."""
        shown = self._shown(split)

        def indicate(rows: np.ndarray) -> np.ndarray:
            parts = [np.zeros((len(rows), 0), np.float32)]
            for places, size in shown:
                part = np.zeros((len(rows), size + 1), np.float32)
                np.put_along_axis(part, places[rows], 1.0, axis=1)
                parts.append(part[:, 1:])
            return np.concatenate(parts, axis=1)

        return indicate


def _shown(feature: Feature, coded: np.ndarray) -> tuple[np.ndarray, int]:
    """Which values examples show, `int [M, n]` from 1, 0 for none, and how many there are."""
    if feature.kind == NUMERICAL:
        edges = (np.array(feature.edges) - feature.mean) / feature.scale
        place = np.searchsorted(edges.astype(np.float32), coded[:, 1:], side="right")
        return np.where(coded[:, :1] > 0, place + 1, 0), len(edges) + 1
    place, most = coded - SPECIAL_VALUES + 1, min(len(feature.values), MOST_VALUES)
    return np.where((place > 0) & (place <= most), place, 0), most


_score = jax.jit(score)


def answer_linear(
    indicate: Callable[[np.ndarray], np.ndarray],
    table: np.ndarray,
    bias: np.ndarray,
    questions: Questions,
) -> tuple[np.ndarray, np.ndarray]:
    """Answers by logits indicate(rows) @ table + bias; table `[K, V]`, bias `[V]`."""
    table, bias = jnp.asarray(table.T, jnp.float32), jnp.asarray(bias)
    found = []
    size = 256
    for start in range(0, len(questions), size):
        chosen = np.resize(np.arange(start, min(start + size, len(questions))), size)
        shown, items = indicate(questions.rows[chosen]), questions.items[chosen]
        count = min(size, len(questions) - start)
        found.append([np.asarray(part)[:count] for part in _score(shown, table, bias, items)])
    log_probability, rank = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return log_probability, rank


def answer_popularity(schema: Schema, questions: Questions) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability (nats) and rank by popularity alone."""
    log_popularity = popularity(schema)
    ordered = np.sort(log_popularity)
    ahead = len(ordered) - np.searchsorted(ordered, log_popularity, side="left")
    return log_popularity[questions.items], ahead[questions.items].astype(np.int32)
