"""Multi-label classification: a text has any number of labels, each of them yes or no.

Legend: B examples, Q queries, T labels.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cbert.data.columns import Split
from cbert.data.text_records import Text
from cbert.model.config import ModelConfig
from cbert.model.heads import ClassificationHead
from cbert.schema import Schema
from cbert.schema.target import LABELS
from cbert.tasks import label_counts
from cbert.tasks.average_precision import average_precisions
from cbert.tasks.base import Array, Batch, Metrics
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.label_metrics import CALIBRATION_ERROR, calibration_error, fraction, mean_f1
from cbert.tasks.losses import sum_known
from cbert.tasks.metric import CROSS_ENTROPY, EXACT_MATCH, MACRO_F1, CorpusMetrics, Metric
from cbert.tasks.text_task import ExampleQueries, TextTask, all_queries, query_known, texts


class MultiLabel(TextTask):
    """Says of each label of the schema's target whether a text has it, at probability 1/2.

    Labels that are not in the schema have no cross-entropy. In the other metrics a text that
    has one is not right, and F1 counts them as one more label, which is always missed.
    """

    name: ClassVar[str] = "multi_label"
    target: ClassVar[str | None] = LABELS
    # The first two are means over queries; cross-entropy is the sum over labels.
    metrics: ClassVar[tuple[Metric, ...]] = (
        CROSS_ENTROPY,
        EXACT_MATCH,
        Metric("micro_f1", "max", "micro-F1", percent=True),
        MACRO_F1,
        Metric("micro_ap", "max", "micro-AP", percent=True),
        Metric("macro_ap", "max", "macro-AP", percent=True),
        CALIBRATION_ERROR,
    )
    shown: ClassVar[tuple[str, ...]] = ("cross_entropy", "exact_match", "micro_f1")

    @classmethod
    def head(cls, config: ModelConfig, schema: Schema, options: None) -> ClassificationHead:
        """A logit for each label."""
        return ClassificationHead(config, len(schema.known_target.values))

    def first_parameters(self, train: Split) -> dict[str, dict[str, np.ndarray]]:
        """The bias of the last layer: the log-odds of each label in the training split.

        An example counts as often as its weight is to their mean.
        """
        labels = train.targets["labels"]
        known = labels[:, 0] >= 0
        weights = np.ones(len(labels)) if train.weights is None else train.weights
        counts = weights[known].astype(np.float64)
        counts *= len(counts) / max(counts.sum(), np.finfo(np.float64).tiny)
        present = counts @ labels[known]
        log_odds = np.log((present + 0.5) / (counts.sum() - present + 0.5))
        return {"classifier": {"bias": log_odds.astype(np.float32)}}

    def _cross_entropy(self, logits: Array, labels: Array) -> Array:
        """The sum over labels in nats, `[B]`; 0 where the labels are not known."""
        losses = optax.sigmoid_binary_cross_entropy(logits, jnp.maximum(labels, 0))
        return jnp.where(labels >= 0, losses, 0).sum(axis=1)

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Cross-entropy of all labels in nats; an example without labels adds nothing."""
        labels = batch["labels"]
        losses = self._cross_entropy(self.outputs(params, batch, rngs=rngs), labels)
        total, count = sum_known(losses, labels[:, 0] >= 0, batch)
        return total / batch["divisor"], {"loss": (total, count)}

    def queries(self, split: Split, masking: str) -> ExampleQueries:
        """Every example whose labels are known, whatever `masking` says."""
        known = split.targets["labels"][:, 0] >= 0
        return query_known(split, known, ("labels", "unknown_labels"))

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """The labels' log-probability (nats), and each label's probability `[Q, T]`."""
        logits = self.outputs(params, columns)
        return {
            "log_probability": -self._cross_entropy(logits, columns["labels"]),
            "probability": jax.nn.sigmoid(logits),
        }

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, np.ndarray]:
        """Cross-entropy, and whether all labels of a query are right."""
        right = (predictions["probability"] > 0.5) == (queries.targets["labels"] > 0)
        right &= queries.targets["unknown_labels"][:, None] == 0
        return {
            "cross_entropy": -predictions["log_probability"].astype(np.float64),
            "exact_match": right.all(axis=1).astype(np.float64),
        }

    def corpus_metrics(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> CorpusMetrics:
        """F1 = 2 TP / (2 TP + FP + FN) over all labels together, and its mean over labels.

        Average precision is also of all pairs of a text and a label, and the mean over labels.
        The expected calibration error is that of all pairs of a text and a label.
        """
        predicted, true = predictions["probability"] > 0.5, queries.targets["labels"] > 0
        hits = (predicted & true).astype(np.float64)
        occurring = predicted.astype(np.float64) + true
        unknown = queries.targets["unknown_labels"][:, None]
        statistics = np.hstack([hits, np.zeros_like(unknown), occurring, unknown])

        def measure(sums: np.ndarray) -> dict[str, np.ndarray]:
            both, total = np.split(sums, 2, axis=-1)
            micro = fraction(2 * both.sum(axis=-1), total.sum(axis=-1))
            return {"micro_f1": micro, "macro_f1": mean_f1(both, total)}

        f1 = CorpusMetrics(statistics.astype(np.float64), measure)
        ap = average_precisions(true, predictions["probability"], unknown[:, 0])
        return f1 + ap + calibration_error(*self.calibration(predictions, queries))

    def calibration(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether a text has each label, `[Q, T]`, and the label's probability."""
        return queries.targets["labels"] > 0, predictions["probability"].astype(np.float64)

    def label_counts(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> LabelCounts:
        """The counts of each label; those that are not in the schema are one more."""
        predicted, true = predictions["probability"] > 0.5, queries.targets["labels"] > 0
        unknown = 0, 0, queries.targets["unknown_labels"].sum()
        of_known = (each.sum(axis=0) for each in (predicted & true, predicted, true))
        names = *self.schema.known_target.values, label_counts.UNKNOWN
        return label_counts.ordered(names, map(np.append, of_known, unknown))

    def prediction_columns(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, Any]:
        """Log-probability, the predicted labels, and all probabilities."""
        return {
            "log_probability": predictions["log_probability"],
            "prediction": self._names(predictions["probability"] > 0.5),
            "probability": list(predictions["probability"]),
        }

    def _names(self, present: np.ndarray) -> list[list[str]]:
        values = self.schema.known_target.values
        return [[values[code] for code in np.nonzero(row)[0]] for row in present]

    def table(self, split: Split, queries: ExampleQueries) -> dict[str, Any]:
        """The text and its labels."""
        own = [Text.from_json(split.texts[row]).label for row in queries.rows]
        return {**texts(split, queries.rows), "labels": own}

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> ExampleQueries:
        """The queries of an evaluation's table."""
        lists: list[list[str] | None] = [list(labels) for labels in columns["labels"]]
        target = self.schema.known_target
        return all_queries(
            {
                "labels": target.encode_label_lists(lists),
                "unknown_labels": target.unknown_labels(lists),
            }
        )

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The labels' log-probability, and each label's probability."""
        probability = np.stack(list(columns["probability"]))
        return {"log_probability": columns["log_probability"], "probability": probability}
