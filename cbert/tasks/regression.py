"""Regression: a text has a number.

Legend: B examples, Q queries.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.data.columns import Split
from cbert.model.config import ModelConfig
from cbert.model.heads import ClassificationHead
from cbert.schema import Schema
from cbert.schema.target import NUMBER
from cbert.tasks.base import Batch, CorpusMetrics, Metric, Metrics
from cbert.tasks.text_task import ExampleQueries, TextTask, query_known, texts

Array = jax.Array


class Regression(TextTask):
    """Predicts the number of the schema's target; the model sees it standardised."""

    name: ClassVar[str] = "regression"
    target: ClassVar[str | None] = NUMBER
    shown: ClassVar[tuple[str, ...]] = ("squared_error", "absolute_error")

    @classmethod
    def head(cls, config: ModelConfig, schema: Schema, own: None) -> ClassificationHead:
        """One value, from the pooled first position."""
        return ClassificationHead(config, 1)

    @classmethod
    def scored(
        cls, config: ml_collections.ConfigDict, schema: Schema, length: int
    ) -> tuple[int, int]:
        """One value an example."""
        return 1, 1

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The first two are means over queries, in the target's units."""
        return (
            Metric("squared_error", "min", "squared error"),
            Metric("absolute_error", "min", "absolute error"),
            Metric("pearson", "max", "Pearson correlation"),
        )

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Half the squared standardised error; a number that is not known adds nothing."""
        assert self.schema.target is not None
        known = jnp.isfinite(batch["number"])
        true = (batch["number"] - self.schema.target.mean) / self.schema.target.scale
        predicted = self.outputs(params, batch, rngs=rngs)[:, 0]
        errors = predicted - jnp.where(known, true, predicted)
        total = (errors**2).sum() / 2
        return total / batch["normaliser"], {"loss": (total, known.sum())}

    def queries(self, split: Split, masking: str) -> ExampleQueries:
        """Every example whose number is known, whatever `masking` says."""
        return query_known(split, np.isfinite(split.targets["number"]), ("number",))

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """The predicted number, in the target's units."""
        assert self.schema.target is not None
        standardised = self.outputs(params, columns)[:, 0]
        target = self.schema.target
        return {"prediction": target.mean + standardised * target.scale}

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> dict[str, np.ndarray]:
        """Squared and absolute error of each query."""
        errors = predictions["prediction"].astype(np.float64) - queries.targets["number"]
        return {"squared_error": errors**2, "absolute_error": np.abs(errors)}

    def corpus_metrics(
        self, predictions: dict[str, np.ndarray], queries: ExampleQueries
    ) -> CorpusMetrics:
        """Pearson's correlation; 0 where one of the two does not vary."""
        predicted = predictions["prediction"].astype(np.float64)
        true = queries.targets["number"].astype(np.float64)

        def measure(weights: np.ndarray) -> dict[str, float]:
            weights = weights / weights.sum()
            one, other = predicted - weights @ predicted, true - weights @ true
            scale = np.sqrt((weights @ one**2) * (weights @ other**2))
            return {"pearson": float(weights @ (one * other) / scale) if scale else 0.0}

        return measure

    def table(self, split: Split, queries: ExampleQueries) -> dict[str, Any]:
        """The text and its number."""
        return {**texts(split, queries.rows), "number": queries.targets["number"]}
