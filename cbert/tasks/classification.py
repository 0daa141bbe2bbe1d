"""Classification: a text, or a pair of texts, has one label.

Legend: B examples, Q queries, T labels.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cbert.data.columns import Split
from cbert.model.config import ModelConfig
from cbert.model.heads import ClassificationHead
from cbert.schema import Schema
from cbert.schema.target import LABEL
from cbert.tasks import label_counts
from cbert.tasks.base import Array, Batch, Metrics
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.label_metrics import CALIBRATION_ERROR, calibration_error, macro_f1
from cbert.tasks.losses import sum_cross_entropy
from cbert.tasks.metric import ACCURACY, CROSS_ENTROPY, MACRO_F1, CorpusMetrics, Metric
from cbert.tasks.text_task import ExampleQueries, TextTask, all_queries, query_known, texts


class Classification(TextTask):
    """Gives a text one of the labels of the schema's target."""

    name: ClassVar[str] = "classification"
    target: ClassVar[str | None] = LABEL
    # The first two are means over queries.
    metrics: ClassVar[tuple[Metric, ...]] = (
        CROSS_ENTROPY,
        ACCURACY,
        MACRO_F1,
        CALIBRATION_ERROR,
    )
    shown: ClassVar[tuple[str, ...]] = ("cross_entropy", "accuracy", "macro_f1")

    @classmethod
    def head(cls, config: ModelConfig, schema: Schema, options: None) -> ClassificationHead:
        """Logits of the labels, from the pooled first position."""
        return ClassificationHead(config, len(schema.known_target.values))

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Cross-entropy of the labels in nats; a label that is not known adds nothing."""
        logits = self.outputs(params, batch, rngs=rngs)
        total, count = sum_cross_entropy(logits, batch["label"], batch)
        return total / batch["divisor"], {"loss": (total, count)}

    def queries(self, split: Split, masking: str) -> ExampleQueries:
        """Every example whose label is known, whatever `masking` says."""
        return query_known(split, split.targets["label"] >= 0, ("label",))

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """The label's log-probability (nats), the likeliest label, and its probability."""
        log_probabilities = jax.nn.log_softmax(self.outputs(params, columns))
        own = jnp.take_along_axis(log_probabilities, columns["label"][:, None], axis=1)
        return {
            "log_probability": own[:, 0],
            "prediction": log_probabilities.argmax(axis=1),
            "probability": jnp.exp(log_probabilities.max(axis=1)),
        }

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, np.ndarray]:
        """Cross-entropy and accuracy of each query."""
        correct = predictions["prediction"] == queries.targets["label"]
        return {
            "cross_entropy": -predictions["log_probability"].astype(np.float64),
            "accuracy": correct.astype(np.float64),
        }

    def corpus_metrics(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> CorpusMetrics:
        """Macro-F1 and expected calibration error."""
        f1 = macro_f1(queries.targets["label"], predictions["prediction"])
        return f1 + calibration_error(*self.calibration(predictions, queries))

    def calibration(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether the likeliest label is right, `[Q]`, and its probability."""
        correct = predictions["prediction"] == queries.targets["label"]
        return correct, predictions["probability"].astype(np.float64)

    def label_counts(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> LabelCounts:
        """The counts of each label, with the confusions."""
        names = self.schema.known_target.values
        return label_counts.of_labels(
            names, queries.targets["label"], predictions["prediction"]
        )

    def prediction_columns(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, Any]:
        """The predictions, with the name of the predicted label."""
        values = self.schema.known_target.values
        return {**predictions, "prediction": [values[n] for n in predictions["prediction"]]}

    def table(self, split: Split, queries: ExampleQueries) -> dict[str, Any]:
        """The text and its label."""
        return {
            **texts(split, queries.rows),
            "label": [self.schema.known_target.values[n] for n in queries.targets["label"]],
        }

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> ExampleQueries:
        """The queries of an evaluation's table."""
        return all_queries({"label": self._codes(columns["label"])})

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Log-probability, the predicted label, and its probability."""
        read = {name: columns[name] for name in ("log_probability", "probability")}
        return {**read, "prediction": self._codes(columns["prediction"])}

    def _codes(self, names: np.ndarray) -> np.ndarray:
        return self.schema.known_target.encode_labels(list(names))
