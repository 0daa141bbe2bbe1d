"""Regression: a text has a number.

Legend: B examples, Q queries.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from cbert.data.columns import Split
from cbert.model.config import ModelConfig
from cbert.model.heads import ClassificationHead
from cbert.schema import Schema
from cbert.schema.target import NUMBER
from cbert.tasks.base import Array, Batch, Metrics
from cbert.tasks.label_metrics import fraction
from cbert.tasks.losses import sum_known
from cbert.tasks.metric import CorpusMetrics, Metric
from cbert.tasks.text_task import ExampleQueries, TextTask, all_queries, query_known, texts


class Regression(TextTask):
    """Predicts the number of the schema's target; the model sees it standardised."""

    name: ClassVar[str] = "regression"
    target: ClassVar[str | None] = NUMBER
    # The first two are means over queries, in the target's units.
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("squared_error", "min", "squared error"),
        Metric("absolute_error", "min", "absolute error"),
        Metric("r_squared", "max", "R²"),
        Metric("pearson", "max", "Pearson correlation", judges_constants=False),
    )
    shown: ClassVar[tuple[str, ...]] = ("squared_error", "absolute_error")

    @classmethod
    def head(cls, config: ModelConfig, schema: Schema, options: None) -> ClassificationHead:
        """One value, from the pooled first position."""
        return ClassificationHead(config, 1)

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Half the squared standardised error; a number that is not known adds nothing."""
        known, target = jnp.isfinite(batch["number"]), self.schema.known_target
        true = (batch["number"] - target.mean) / target.scale
        predicted = self.outputs(params, batch, rngs=rngs)[:, 0]
        errors = predicted - jnp.where(known, true, predicted)
        total, count = sum_known(errors**2 / 2, known, batch)
        return total / batch["divisor"], {"loss": (total, count)}

    def queries(self, split: Split, masking: str) -> ExampleQueries:
        """Every example whose number is known, whatever `masking` says."""
        return query_known(split, np.isfinite(split.targets["number"]), ("number",))

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """The predicted number, in the target's units."""
        standardised = self.outputs(params, columns)[:, 0]
        target = self.schema.known_target
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
        """R², 1 - squared error / variance of the numbers, and Pearson's correlation.

        Both are 0 where the numbers do not vary, and the latter where the predictions do not.
        A deviation of at most 1e-6 of the largest number, as of raw timestamps, counts as none.
        """
        predicted = predictions["prediction"].astype(np.float64)
        true = queries.targets["number"].astype(np.float64)
        x, y = _standardised(predicted), _standardised(true)
        error = fraction((predicted - true) ** 2, np.full_like(true, true.var()))

        def measure(sums: np.ndarray) -> dict[str, np.ndarray]:
            count, one, other, square, other_square, both, errors = np.moveaxis(sums, -1, 0)
            own, theirs = count * square - one**2, count * other_square - other**2
            # What rounding leaves of the variance of equal numbers counts as none.
            true_varies = theirs > 1e-9 * count * other_square
            varies = (own > 1e-9 * count * square) & true_varies
            scale = np.sqrt(np.where(varies, own * theirs, 0))
            explained = theirs - count * errors
            return {
                "r_squared": fraction(explained, np.where(true_varies, theirs, 0)),
                "pearson": np.clip(fraction(count * both - one * other, scale), -1, 1),
            }

        columns = [np.ones_like(x), x, y, x**2, y**2, x * y, error]
        return CorpusMetrics(np.stack(columns, axis=1), measure)

    def table(self, split: Split, queries: ExampleQueries) -> dict[str, Any]:
        """The text and its number."""
        return {**texts(split, queries.rows), "number": queries.targets["number"]}

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> ExampleQueries:
        """The queries of an evaluation's table."""
        return all_queries({"number": columns["number"]})

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The predicted number."""
        return {"prediction": columns["prediction"]}


def _standardised(column: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1; zeros where it does not vary by more than rounding."""
    centred, scale = column - column.mean(), column.std()
    if scale <= 1e-6 * np.abs(column).max():
        return np.zeros_like(column)
    return centred / scale
