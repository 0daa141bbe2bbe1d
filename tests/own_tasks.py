"""Tasks as somebody outside the package would write them, registered where this is run.

Legend: Q queries.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from cbert import tasks
from cbert.data.columns import Split
from cbert.model import contextual_bert
from cbert.schema import PAD_ITEM
from cbert.tasks.base import Scored, Task, dropped_context
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.metric import Metric


class Hits(MaskedItem):
    """Masked items with one more metric, which needs ranks."""

    name = "hits"
    metrics = (*MaskedItem.metrics, Metric("hit@10", "max", "hit@10", percent=True))

    def metric_values(self, predictions, queries):
        values = super().metric_values(predictions, queries)
        return {**values, "hit@10": (predictions["rank"] <= 10).astype(np.float64)}


class Halved(MaskedItem):
    """Masked items with something else under the name of a metric."""

    name = "halved"

    def metric_values(self, predictions, queries):
        values = super().metric_values(predictions, queries)
        return values | {"mrr": values["mrr"] / 2} if "mrr" in values else values


class Warm(MaskedItem):
    """Masked items by a model of another temperature."""

    name = "warm"

    def predict(self, params, columns, query):
        predicted = super().predict(params, columns, query)
        return {**predicted, "log_probability": predicted["log_probability"] - 0.1}


@dataclasses.dataclass(frozen=True)
class Queried:
    """One query for each example: its number of items, `[Q]`."""

    rows: np.ndarray
    lengths: np.ndarray
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {}

    @property
    def weights(self) -> np.ndarray:
        return np.ones(len(self.rows))


@dataclasses.dataclass(frozen=True)
class CountItems(Task):
    """How many items a set has, which extends none of cbert's tasks."""

    name: ClassVar[str] = "count_items"
    metrics: ClassVar[Any] = (Metric("squared_error", "min", "squared error"),)
    shown: ClassVar[tuple[str, ...]] = ("squared_error",)

    @classmethod
    def build_model(cls, config, method, method_options, schema, options):
        return contextual_bert.build(config, method, schema, method_options)

    @classmethod
    def positions_and_candidates(cls, options, schema, length):
        return Scored(1, 1)

    @classmethod
    def create(cls, config, model, schema, train, options):
        return cls(model, schema)

    def batch(self, keys, examples):
        context = dropped_context(keys[1], examples, 0.0, self.schema)
        columns = {"items": examples.columns["items"], "context": context}
        return {**columns, "divisor": float(examples.batch_size)}

    def _predicted(self, params, columns):
        first = jnp.zeros((len(columns["items"]), 1), jnp.int32)
        inputs = columns["items"], columns["context"], first
        return self.model.apply({"params": params}, *inputs)[0][:, 0, 0]

    def loss(self, params, batch, rngs):
        lengths = (batch["items"] != PAD_ITEM).sum(1)
        errors = (self._predicted(params, batch) - lengths) ** 2
        total, count = errors.sum(), jnp.float32(len(errors))
        return total / batch["divisor"], {"loss": (total, count)}

    def queries(self, split: Split, masking: str):
        return Queried(np.arange(len(split), dtype=np.int32), split.lengths)

    def predict(self, params, columns, query):
        return {"predicted": self._predicted(params, columns)}

    def metric_values(self, predictions, queries):
        errors = predictions["predicted"].astype(np.float64) - queries.lengths
        return {"squared_error": errors**2}

    def table(self, split, queries):
        return {"length": queries.lengths}

    def read_queries(self, columns):
        return Queried(np.arange(len(columns["length"])), columns["length"])

    def read_predictions(self, columns):
        return {"predicted": columns["predicted"]}


for _task in (Hits, Halved, Warm, CountItems):
    tasks.TASKS[_task.name] = _task
