"""Tagging: each word of a text has a tag, which the model gives to the word's first piece.

Legend: B examples, L positions, Q queries, T tags.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.data.columns import Split
from cbert.data.text_records import Text
from cbert.errors import UserError
from cbert.model.config import ModelConfig
from cbert.model.heads import TaggingHead
from cbert.model.text_bert import TextBert
from cbert.schema import Schema
from cbert.schema.target import TAGS
from cbert.tasks import label_counts, span_scores
from cbert.tasks.base import Array, Batch, Metrics, Scored
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.losses import sum_cross_entropy
from cbert.tasks.metric import ACCURACY, CROSS_ENTROPY, CorpusMetrics, Metric
from cbert.tasks.text_task import ExampleQueries, TextTask, all_queries, query_known, texts


@dataclasses.dataclass(frozen=True)
class Tagging(TextTask):
    """Gives each word one of the tags of the schema's target; a query is a sentence.

    Words that were cut off and tags that are not in the schema are left out of cross-entropy
    and accuracy. Spans of tags that are not in the schema count as missed.

    Attributes:
      tagged_words: Mean number of tagged words an example in the whole training split, where
        examples count by their weights. The loss is divided by this constant, so grouping by
        length leaves its expectation as it is.
    """

    tagged_words: float = 1.0

    name: ClassVar[str] = "tagging"
    target: ClassVar[str | None] = TAGS
    # The first two are means over words.
    metrics: ClassVar[tuple[Metric, ...]] = (
        CROSS_ENTROPY,
        ACCURACY,
        Metric("span_precision", "max", "span precision", percent=True),
        Metric("span_recall", "max", "span recall", percent=True),
        Metric("span_f1", "max", "span F1", percent=True),
    )
    shown: ClassVar[tuple[str, ...]] = ("cross_entropy", "accuracy", "span_f1")

    @classmethod
    def head(cls, config: ModelConfig, schema: Schema, options: None) -> TaggingHead:
        """Logits of the tags at each position."""
        return TaggingHead(config, len(schema.known_target.values))

    @classmethod
    def positions_and_candidates(cls, options: None, schema: Schema, length: int) -> Scored:
        """Every position of an example is scored, against the tags."""
        return Scored(length, len(schema.known_target.values))

    @classmethod
    def create(
        cls,
        config: ml_collections.ConfigDict,
        model: TextBert,
        schema: Schema,
        train: Split | None,
        options: None,
    ) -> Self:
        """The task of a checked config; see `tasks.create`."""
        expected = 1.0
        if train is not None:
            tagged = (train.token_columns["tags"] >= 0).sum(axis=1)
            expected = float(np.average(tagged, weights=train.weights))
            if not expected:
                raise UserError("no training text has tags; prepare other data")
        return cls(*cls.common(config, model, schema, train), tagged_words=expected)

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Cross-entropy of the words' tags in nats, divided by the constant."""
        logits = self.outputs(params, batch, rngs=rngs)
        total, count = sum_cross_entropy(logits, batch["tags"], batch)
        return total / (batch["divisor"] * self.tagged_words), {"loss": (total, count)}

    def queries(self, split: Split, masking: str) -> ExampleQueries:
        """Every example with tags, whatever `masking` says; it weighs its words of known tags.

        `names` are the tags of its words as the record has them, those that were cut off left
        out.
        """
        starts = split.token_columns["word_starts"]
        tagged = (starts >= 0).sum(axis=1)
        queries = query_known(split, tagged, ("tags", "word_starts"))
        words = (queries.targets["tags"] >= 0).sum(axis=1)
        if not words.any():
            raise UserError(
                "no word of the split has a tag that is in the schema; take another split"
            )
        names = np.empty(len(queries), object)
        for query, row in enumerate(queries.rows):
            tags = Text.from_json(split.texts[row]).tags or []
            names[query] = [tags[word] for word in starts[row][starts[row] >= 0]]
        return dataclasses.replace(
            queries,
            targets={**queries.targets, "names": names},
            weights=words.astype(np.float64),
        )

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """Of each sentence the mean log-probability of its tags and the likeliest tags.

        `tags` is `int32 [Q, max_items]`, filled with -1 beyond the batch's padded length.
        """
        log_probabilities = jax.nn.log_softmax(self.outputs(params, columns))
        tags = columns["tags"]
        known, safe = tags >= 0, jnp.maximum(tags, 0)
        own = jnp.take_along_axis(log_probabilities, safe[..., None], axis=2)[..., 0]
        rest = self.schema.max_items - tags.shape[1]
        predicted = jnp.pad(
            log_probabilities.argmax(axis=2), ((0, 0), (0, rest)), constant_values=-1
        )
        mean = jnp.where(known, own, 0).sum(axis=1) / jnp.maximum(known.sum(axis=1), 1)
        return {"log_probability": mean, "tags": predicted}

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, np.ndarray]:
        """Mean cross-entropy and accuracy of each sentence's words."""
        tags = queries.targets["tags"]
        correct = (predictions["tags"] == tags) & (tags >= 0)
        return {
            "cross_entropy": -predictions["log_probability"].astype(np.float64),
            "accuracy": correct.sum(axis=1) / np.maximum(queries.weights, 1),
        }

    def corpus_metrics(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> CorpusMetrics:
        """Precision, recall and F1 of spans."""
        pairs = zip(queries.targets["names"], self._names(predictions, queries), strict=True)
        counts = np.array([span_scores.count(truth, own) for truth, own in pairs])
        return CorpusMetrics(counts.astype(np.float64), span_scores.scores)

    def label_counts(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> LabelCounts:
        """The counts of each type of span."""
        predicted = self._names(predictions, queries)
        return label_counts.of_spans(queries.targets["names"], predicted)

    def _names(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> list[list[str]]:
        """The predicted tags of each sentence's words."""
        values = self.schema.known_target.values
        pairs = zip(queries.targets["word_starts"], predictions["tags"], strict=True)
        return [[values[code] for code in tags[starts >= 0]] for starts, tags in pairs]

    def prediction_columns(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, Any]:
        """The mean log-probability, and the predicted tags of the words."""
        names = self._names(predictions, queries)
        return {"log_probability": predictions["log_probability"], "prediction": names}

    def table(self, split: Split, queries: ExampleQueries) -> dict[str, Any]:
        """The text and the tags of its words, as far as they were not cut off."""
        return {**texts(split, queries.rows), "tags": list(queries.targets["names"])}

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> ExampleQueries:
        """The queries of an evaluation's table, as if each word were one token."""
        tags = self._codes(columns["tags"])
        lengths = np.array([len(names) for names in columns["tags"]])
        word = np.arange(tags.shape[1])
        starts = np.where(word < lengths[:, None], word, -1)
        targets = {"tags": tags, "word_starts": starts, "names": columns["tags"]}
        return all_queries(targets, (tags >= 0).sum(axis=1))

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The mean log-probability, and the predicted tags of the words."""
        tags = self._codes(columns["prediction"])
        return {"log_probability": columns["log_probability"], "tags": tags}

    def _codes(self, rows: np.ndarray) -> np.ndarray:
        """The codes of the tags of some sentences, padded with -1."""
        codes: np.ndarray = np.full((len(rows), max(map(len, rows))), -1, np.int32)
        for row, names in zip(codes, rows, strict=True):
            row[: len(names)] = self.schema.known_target.encode_labels(list(names))
        return codes
