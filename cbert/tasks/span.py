"""Extractive answers: the first and the last token of the answer in a passage, or none.

Legend: B examples, L positions, Q queries, W the most tokens of an answer.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.config import field
from cbert.data.columns import Split
from cbert.model.config import ModelConfig
from cbert.model.heads import SpanHead
from cbert.model.text_bert import TextBert
from cbert.schema import PAD_ITEM, Schema
from cbert.schema.target import ANSWER
from cbert.spans import best_span
from cbert.tasks.base import Batch, Metric, Metrics
from cbert.tasks.masked_language import eligible
from cbert.tasks.text_task import ExampleQueries, TextTask, query_known, texts

Array = jax.Array
CONTINUES = "##"


@dataclasses.dataclass(frozen=True)
class SpanConfig:
    """Answers that are spans of a passage (BERT, section 4.2 and 4.3)."""

    max_answer: int = field(30, "the most tokens of a predicted answer", at_least=1)


@dataclasses.dataclass(frozen=True)
class Span(TextTask):
    """Finds the answer in the second text, or in the only one; [CLS] stands for no answer.

    Exact match and F1 are those of tokens, not of normalised strings as in SQuAD's script.

    Attributes:
      max_answer: W.
    """

    max_answer: int = 30

    name: ClassVar[str] = "span"
    target: ClassVar[str | None] = ANSWER
    shown: ClassVar[tuple[str, ...]] = ("cross_entropy", "exact_match", "token_f1")
    Config: ClassVar[type | None] = SpanConfig

    @classmethod
    def head(cls, config: ModelConfig, schema: Schema, own: SpanConfig) -> SpanHead:
        """Logits of the first and the last token."""
        return SpanHead(config)

    @classmethod
    def scored(
        cls, config: ml_collections.ConfigDict, schema: Schema, length: int
    ) -> tuple[int, int]:
        """Every position is scored twice."""
        return length, 2

    @classmethod
    def create(
        cls,
        config: ml_collections.ConfigDict,
        model: TextBert,
        schema: Schema,
        train: Split | None,
        own: SpanConfig,
    ) -> "Span":
        """The task of a checked config; see `tasks.create`."""
        return cls(model, schema, config.train.context_dropout, own.max_answer)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All are means over queries."""
        return (
            Metric("cross_entropy", "min", "cross-entropy"),
            Metric("exact_match", "max", "exact match", percent=True),
            Metric("token_f1", "max", "token F1", percent=True),
            Metric("answerable_accuracy", "max", "answerable", percent=True),
        )

    def _log_probabilities(
        self, params: Any, columns: Mapping[str, Any], rngs: Mapping[str, Array] | None = None
    ) -> tuple[Array, Array]:
        """Of the first and of the last token, `[B, L]` each, no padding among them."""
        logits = self.outputs(params, columns, rngs=rngs)
        logits = jnp.where((columns["items"] != PAD_ITEM)[..., None], logits, -1e9)
        log_probabilities = jax.nn.log_softmax(logits, axis=1)
        return log_probabilities[..., 0], log_probabilities[..., 1]

    def _nats(self, columns: Mapping[str, Any], first: Array, last: Array) -> Array:
        """Minus the mean log-probability of the answer's first and last token, `[B]`."""
        return -(_at(first, columns["start"]) + _at(last, columns["end"])) / 2

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Mean cross-entropy of the first and the last token in nats."""
        losses = self._nats(batch, *self._log_probabilities(params, batch, rngs))
        count = jnp.asarray(len(losses), jnp.float32)
        return losses.sum() / batch["normaliser"], {"loss": (losses.sum(), count)}

    def queries(self, split: Split, masking: str) -> ExampleQueries:
        """Every example, whatever `masking` says; those without an answer have (0, 0)."""
        return query_known(split, np.ones(len(split)), ("start", "end", "items"))

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """The answer's log-probability (nats), and the likeliest answer's first and last token.

        Both are 0 where no answer is likelier than every span.
        """
        first, last = self._log_probabilities(params, columns)
        segments, codes = columns["segments"], columns["items"]
        passage = eligible(codes, self.schema)
        passage &= segments == segments.max(axis=1, keepdims=True)
        start, end, score = best_span(first, last, passage, self.max_answer)
        none = first[:, 0] + last[:, 0] >= score
        return {
            "log_probability": -self._nats(columns, first, last),
            "start": jnp.where(none, 0, start),
            "end": jnp.where(none, 0, end),
        }

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, np.ndarray]:
        """Cross-entropy, exact match, F1 of tokens, and whether there being one is right."""
        one = predictions["start"], predictions["end"]
        other = queries.targets["start"], queries.targets["end"]
        return {
            "cross_entropy": -predictions["log_probability"].astype(np.float64),
            "exact_match": ((one[0] == other[0]) & (one[1] == other[1])).astype(np.float64),
            "token_f1": token_f1(*one, *other),
            "answerable_accuracy": ((one[1] > 0) == (other[1] > 0)).astype(np.float64),
        }

    def prediction_columns(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, Any]:
        """The predictions, with the tokens of the predicted answer."""
        spans = self._tokens(queries, predictions["start"], predictions["end"])
        return {**predictions, "prediction": spans}

    def _tokens(
        self, queries: ExampleQueries, start: np.ndarray, end: np.ndarray
    ) -> list[str | None]:
        """The tokens of spans, joined to words; None where there is no answer."""
        answers: list[str | None] = []
        for codes, first, last in zip(queries.targets["items"], start, end, strict=True):
            tokens = [self.schema.items[code] for code in codes[first : last + 1]]
            answer = " ".join(tokens).replace(f" {CONTINUES}", "")
            answers.append(answer if last else None)
        return answers

    def table(self, split: Split, queries: ExampleQueries) -> dict[str, Any]:
        """The texts, and the tokens of the answer."""
        answers = self._tokens(queries, queries.targets["start"], queries.targets["end"])
        return {**texts(split, queries.rows), "answer": answers}


def _at(values: Array, positions: Array) -> Array:
    """values `[B, L]` at positions `[B]`."""
    return jnp.take_along_axis(values, positions[:, None], axis=1)[:, 0]


def token_f1(
    start: np.ndarray, end: np.ndarray, true_start: np.ndarray, true_end: np.ndarray
) -> np.ndarray:
    """2 |both| / (|one| + |other|) of spans of tokens, `float64 [Q]`; (0, 0) is no answer."""
    both = np.minimum(end, true_end) - np.maximum(start, true_start) + 1
    sizes = (end - start + 1) + (true_end - true_start + 1)
    return 2 * np.maximum(both, 0) / sizes
