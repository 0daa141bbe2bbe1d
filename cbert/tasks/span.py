"""Extractive answers: the first and the last token of the answer in a passage, or none.

Legend: B examples, L positions, Q queries, W the most tokens of an answer.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.config import field
from cbert.data import text_columns
from cbert.data.columns import Split
from cbert.model.config import ModelConfig
from cbert.model.heads import SpanHead
from cbert.model.text_bert import TextBert
from cbert.schema import PAD_ITEM, Schema
from cbert.schema.target import ANSWER
from cbert.spans import answer_ends, best_span, in_passage
from cbert.tasks import answers, span_queries
from cbert.tasks.base import Array, Batch, Metrics, Scored
from cbert.tasks.losses import sum_known
from cbert.tasks.masked_queries import eligible
from cbert.tasks.metric import CROSS_ENTROPY, EXACT_MATCH, Metric
from cbert.tasks.span_queries import PassageQueries
from cbert.tasks.text_task import ExampleQueries, TextTask, all_queries, texts


@dataclasses.dataclass(frozen=True)
class SpanConfig:
    """Answers that are spans of a passage (BERT, section 4.2 and 4.3)."""

    max_answer: int = field(30, "the most tokens of a predicted answer", at_least=1)


@dataclasses.dataclass(frozen=True)
class Span(TextTask):
    """Finds the answer in the second text, or in the only one; [CLS] stands for no answer.

    Exact match and F1 are those of SQuAD's script, of normalised strings that are cut out of
    the passage. An answer that was cut off with the end of a passage is still the answer of a
    metric that compares strings; training leaves it out, and its cross-entropy is that of none.

    Attributes:
      max_answer: W.
    """

    max_answer: int = 30

    name: ClassVar[str] = "span"
    target: ClassVar[str | None] = ANSWER
    # All are means over queries.
    metrics: ClassVar[tuple[Metric, ...]] = (
        CROSS_ENTROPY,
        EXACT_MATCH,
        Metric("f1", "max", "F1", percent=True),
        Metric("answerable_accuracy", "max", "answerable", percent=True),
    )
    shown: ClassVar[tuple[str, ...]] = ("cross_entropy", "exact_match", "f1")
    Config: ClassVar[type | None] = SpanConfig

    @classmethod
    def head(cls, config: ModelConfig, schema: Schema, options: SpanConfig) -> SpanHead:
        """Logits of the first and the last token."""
        return SpanHead(config)

    @classmethod
    def positions_and_candidates(
        cls, options: SpanConfig, schema: Schema, length: int
    ) -> Scored:
        """Every position is scored twice."""
        return Scored(length, 2)

    @classmethod
    def create(
        cls,
        config: ml_collections.ConfigDict,
        model: TextBert,
        schema: Schema,
        train: Split | None,
        options: SpanConfig,
    ) -> Self:
        """The task of a checked config; see `tasks.create`."""
        common = cls.common(config, model, schema, train)
        return cls(*common, max_answer=options.max_answer)

    def _log_probabilities(
        self, params: Any, columns: Mapping[str, Any], rngs: Mapping[str, Array] | None = None
    ) -> tuple[Array, Array]:
        """Of the first and of the last token, `[B, L]` each, no padding among them."""
        logits = self.outputs(params, columns, rngs=rngs)
        logits = jnp.where((columns["items"] != PAD_ITEM)[..., None], logits, -1e9)
        log_probabilities = jax.nn.log_softmax(logits, axis=1)
        return log_probabilities[..., 0], log_probabilities[..., 1]

    def _nats(self, columns: Mapping[str, Any], first: Array, last: Array) -> Array:
        """Minus the mean log-probability of the answer's first and last token, `[B]`.

        Where the answer was cut off, it is that of none.
        """
        start, end = (jnp.maximum(columns[name], 0) for name in ("start", "end"))
        return -(_at(first, start) + _at(last, end)) / 2

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Mean cross-entropy of the first and the last token in nats.

        An answer that was cut off adds nothing.
        """
        known = batch["start"] != text_columns.CUT_OFF
        losses = self._nats(batch, *self._log_probabilities(params, batch, rngs))
        total, count = sum_known(losses, known, batch)
        return total / batch["divisor"], {"loss": (total, count)}

    def queries(self, split: Split, masking: str) -> PassageQueries:
        """Every passage, whatever `masking` says, with all of its windows."""
        return span_queries.ask(split, self.schema)

    def asked(self, queries: PassageQueries) -> ExampleQueries:
        """A query for each window."""
        return queries.asked

    def joined(
        self, predictions: dict[str, np.ndarray], queries: PassageQueries
    ) -> dict[str, np.ndarray]:
        """Those of the windows joined; see `PassageQueries`."""
        return queries.joined(predictions)

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """The answer's log-probability (nats), and the likeliest answer's first and last token.

        Both are 0 where no answer is likelier than every span. `log_odds` is by how much the
        likeliest span is likelier than no answer.
        """
        first, last = self._log_probabilities(params, columns)
        passage = in_passage(columns["segments"], eligible(columns["items"], self.schema))
        ends = answer_ends(columns["items"], passage, self.schema.answer_continuations)
        start, end, score = best_span(first, last, ends, self.max_answer)
        none = first[:, 0] + last[:, 0]
        return {
            "log_probability": -self._nats(columns, first, last),
            "start": jnp.where(none >= score, 0, start),
            "end": jnp.where(none >= score, 0, end),
            "log_odds": score - none,
        }

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, np.ndarray]:
        """Cross-entropy, exact match, F1, and whether there being an answer is right.

        A baseline that has no probabilities has no cross-entropy.
        """
        values = {}
        if "log_probability" in predictions:
            values["cross_entropy"] = -predictions["log_probability"].astype(np.float64)
        pairs = [
            *zip(self._answers(predictions, queries), queries.targets["answer"], strict=True)
        ]
        right = [(answer is None) == (true is None) for answer, true in pairs]
        return {
            **values,
            "exact_match": np.array([answers.exact_match(*pair) for pair in pairs]),
            "f1": np.array([answers.f1(*pair) for pair in pairs]),
            "answerable_accuracy": np.array(right, np.float64),
        }

    def _answers(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> list[str | None]:
        """The predicted answers as the passages have them, None where there is none."""
        if "answer" in predictions:  # They were read from a table.
            return list(predictions["answer"])
        assert isinstance(queries, PassageQueries)
        return queries.answers(predictions)

    def prediction_columns(
        self, predictions: dict[str, np.ndarray], queries: PassageQueries
    ) -> dict[str, Any]:
        """The predictions, with the predicted answer as the passage has it."""
        return {**predictions, "prediction": self._answers(predictions, queries)}

    def table(self, split: Split, queries: PassageQueries) -> dict[str, Any]:
        """The texts, with whole passages, and the answer."""
        columns = texts(split, queries.rows)
        second = columns.get("text_b", [None] * len(queries))
        for row, passage in enumerate(queries.targets["passage"]):
            (columns["text"] if second[row] is None else second)[row] = passage
        return {**columns, "answer": list(queries.targets["answer"])}

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> ExampleQueries:
        """The queries of an evaluation's table."""
        return all_queries({"answer": columns["answer"]})

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The log-probability, which not every baseline has, and the answer."""
        read = {"answer": columns["prediction"]}
        if "log_probability" in columns:
            read["log_probability"] = columns["log_probability"]
        return read


def _at(values: Array, positions: Array) -> Array:
    """values `[B, L]` at positions `[B]`."""
    return jnp.take_along_axis(values, positions[:, None], axis=1)[:, 0]
