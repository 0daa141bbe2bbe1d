"""What all tasks of texts share: the model, its inputs, and a query for each example.

Legend: B examples, L positions, P positions asked for, Q queries, M examples of a split.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.data.columns import Split
from cbert.data.text_records import Text
from cbert.errors import UserError
from cbert.model import text_bert
from cbert.model.config import ModelConfig
from cbert.model.heads import TextHead
from cbert.model.text_bert import TextBert
from cbert.schema import PAD_ITEM, TEXT, Schema
from cbert.tasks.base import Array, Batch, Examples, Scored, Task, dropped_context


@dataclasses.dataclass(frozen=True)
class ExampleQueries:
    """Q examples of a split, each asked about once.

    Attributes:
      rows: `int32 [Q]`, the example.
      targets: What the examples' targets are, each `[Q, ...]`.
      weights: `float64 [Q]`, what each weighs in the mean of a metric.
      skipped: Examples that cannot be asked about, because their target is not known.
    """

    rows: np.ndarray
    targets: dict[str, np.ndarray]
    weights: np.ndarray
    skipped: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {}


def texts(split: Split, rows: np.ndarray) -> dict[str, list[str | None]]:
    """The texts of some examples as columns: `text`, and `text_b` where there are pairs."""
    read = [Text.from_json(split.texts[row]) for row in rows]
    columns: dict[str, list[str | None]] = {"text": [text.text for text in read]}
    if any(text.text_b is not None for text in read):
        columns["text_b"] = [text.text_b for text in read]
    return columns


def all_queries(
    targets: dict[str, np.ndarray], weights: np.ndarray | None = None
) -> ExampleQueries:
    """Queries with the targets, each `[Q, ...]`, that an evaluation's table holds."""
    count = len(next(iter(targets.values())))
    weights = np.ones(count) if weights is None else weights.astype(np.float64)
    return ExampleQueries(np.arange(count, dtype=np.int32), targets, weights, 0)


def query_known(split: Split, weights: np.ndarray, names: tuple[str, ...]) -> ExampleQueries:
    """The examples that have a weight, with the named columns.

    Args:
      split: The split.
      weights: `[M]`, 0 where the target is not known.
      names: Columns of the split.

    Raises:
      UserError: no example has a weight.
    """
    rows = np.nonzero(weights)[0].astype(np.int32)
    if not len(rows):
        raise UserError(
            "no example of the split has a target that training examples have; take another "
            "split, or prepare the data with each label in all splits"
        )
    targets = {name: split.columns[name][rows] for name in names}
    skipped = len(split) - len(rows)
    return ExampleQueries(rows, targets, weights[rows].astype(np.float64), skipped)


def outputs(
    model: TextBert,
    params: Any,
    columns: Mapping[str, Any],
    positions: Array | None = None,
    rngs: Mapping[str, Array] | None = None,
) -> Any:
    """What the head makes of texts `items [B, L]` at the positions `int32 [B, P]`."""
    codes = columns["items"]
    return model.apply(
        {"params": params},
        jnp.maximum(codes, 0),
        columns["segments"].astype(jnp.int32),
        codes != PAD_ITEM,
        columns["context"],
        positions,
        rngs=dict(rngs) if rngs else None,
    )


@dataclasses.dataclass(frozen=True)
class TextTask(Task):
    """A task of texts; a subclass says what its head, loss and metrics are.

    Attributes:
      model: The model.
      schema: The data's schema.
      context_dropout: Fraction of context features dropped in training.
      mean_weight: The mean weight of the training examples, a constant beside the batch's size
        that the loss is divided by.
    """

    model: TextBert
    context_dropout: float = 0.0
    mean_weight: float = 1.0

    # The kind of target that the data must have, None for a task that needs none.
    target: ClassVar[str | None] = None

    @classmethod
    def build_model(
        cls, config: ModelConfig, method: str, method_options: Any, schema: Schema, options: Any
    ) -> TextBert:
        """A text model with the task's head."""
        cls.check_schema(schema)
        sizes = len(schema.items), schema.max_items
        head = cls.head(config, schema, options)
        return text_bert.build(config, method, schema.features, sizes, head, method_options)

    @classmethod
    def positions_and_candidates(cls, options: Any, schema: Schema, length: int) -> Scored:
        """One position of an example is scored, against the labels, or for one value."""
        return Scored(1, len(schema.labels) or 1)

    @classmethod
    def check_schema(cls, schema: Schema) -> None:
        """Raises `UserError` where the data are no texts or have another target."""
        if schema.kind != TEXT:
            raise UserError(
                f"task.name is {cls.name!r}, but the data are not texts; use masked_item, or "
                "prepare the data with kind=text"
            )
        kind = schema.target.kind if schema.target else None
        if cls.target and kind != cls.target:
            has = f"the target {kind!r}" if kind else "no target"
            raise UserError(
                f"task.name is {cls.name!r}, which needs records with {cls.target!r}, and the "
                f"data have {has}; use another task, or prepare the data with it"
            )

    @classmethod
    @abc.abstractmethod
    def head(cls, config: ModelConfig, schema: Schema, options: Any) -> TextHead:
        """The head of the task."""

    @classmethod
    def create(
        cls,
        config: ml_collections.ConfigDict,
        model: TextBert,
        schema: Schema,
        train: Split | None,
        options: Any,
    ) -> Self:
        """The task of a checked config; see `tasks.create`."""
        return cls(*cls.common(config, model, schema, train))

    @staticmethod
    def common(
        config: ml_collections.ConfigDict, model: TextBert, schema: Schema, train: Split | None
    ) -> tuple[TextBert, Schema, float, float]:
        """The attributes that every task of texts has; the arguments are those of `create`."""
        mean_weight = 1.0 if train is None else train.mean_weight
        return model, schema, config.train.context_dropout, mean_weight

    def batch(self, keys: Array, examples: Examples) -> Batch:
        """The columns of the examples, with context features dropped."""
        _, context_key = keys
        context = dropped_context(context_key, examples, self.context_dropout, self.schema)
        divisor = examples.batch_size * self.mean_weight
        return {**examples.columns, "context": context, "divisor": divisor}

    def outputs(
        self,
        params: Any,
        columns: Mapping[str, Any],
        positions: Array | None = None,
        rngs: Mapping[str, Array] | None = None,
    ) -> Any:
        """See the function `outputs`."""
        return outputs(self.model, params, columns, positions, rngs)
