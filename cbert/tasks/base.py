"""What a task is: how examples become a batch, what the loss is, and how it is evaluated.

Legend: B examples of one device's part of a batch, Q queries of an evaluation, M examples of
its split.

The encoder knows tokens and context, a head knows what is asked, and a task knows the rest.
Training, evaluation and prediction are written against `Task` alone.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import jax
import ml_collections
import numpy as np
from flax import struct

from cbert.data import context_dropout
from cbert.data.columns import Split
from cbert.model.config import ModelConfig
from cbert.schema import Schema
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.metric import CorpusMetrics, Metric, without_sums

Array = jax.Array
# Metric name to its sum and to the count that the sum is divided by in the end.
Metrics = dict[str, tuple[Array, Array]]
Batch = dict[str, Any]


@struct.dataclass
class Examples:
    """The examples of one device's part of the global batch, as they were prepared.

    Attributes:
      columns: Trees of arrays with a leading axis B: `items`, `context`, and for texts
        `segments` and the targets; see `Split.columns`.
      constants: Trees of what a task needs beside the examples, the same for every step.
      index: `int32 [B]`, the position of each example in the global batch. Whatever is drawn
        for an example depends on it, not on the device that holds the example.
      batch_size: The number of examples of the global batch.
    """

    columns: dict[str, Any]
    constants: dict[str, Any]
    index: Array
    batch_size: int = struct.field(pytree_node=False)


def dropped_context(
    key: Array, examples: Examples, rate: float, schema: Schema
) -> dict[str, Array]:
    """The context of the examples, each of whose features is dropped with that probability."""
    columns, index = examples.columns, examples.index
    return context_dropout.drop_features(
        key, columns["context"], index, examples.batch_size, rate, schema
    )


class Scored(NamedTuple):
    """What a task scores of an example.

    Attributes:
      positions: How many positions.
      candidates: How many values each of them is scored against.
      sampled: How many values stand for all of these in the loss; 0 where none do.
    """

    positions: int
    candidates: int
    sampled: int = 0


class Queries(Protocol):
    """What an evaluation asks a model: Q queries about the examples of a split.

    Attributes:
      rows: `int32 [Q]`, the example of each query.
      columns: Name to an array with a leading axis Q: what a query holds beside its example.
      weights: `float64 [Q]`, what each query weighs in the mean of a metric: the words of a
        sentence, for example, or 1.
      skipped: Queries that cannot be asked of this model.
    """

    @property
    def rows(self) -> np.ndarray: ...

    @property
    def skipped(self) -> int: ...

    @property
    def columns(self) -> dict[str, np.ndarray]: ...

    @property
    def weights(self) -> np.ndarray: ...

    def __len__(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
    """One job of a model. Equal tasks share compiled programs.

    What has a body here suits most tasks; a subclass says the rest.

    Attributes:
      model: The Flax module of encoder and head.
      schema: The data's schema.
      name: Its name in configs and evaluations.
      shown: The names of the metrics that a person sees after a validation.
      masks: Whether an evaluation masks something, and `eval.masking` says what.
      Config: Its section `task.<name>` of a config, a frozen dataclass; None for no section.
    """

    model: Any
    schema: Schema
    name: ClassVar[str]
    shown: ClassVar[tuple[str, ...]]
    masks: ClassVar[bool] = False
    Config: ClassVar[type | None] = None

    @classmethod
    @abc.abstractmethod
    def build_model(
        cls, config: ModelConfig, method: str, method_options: Any, schema: Schema, options: Any
    ) -> Any:
        """The model of this task, for data of that schema.

        Args:
          config: Sizes and open choices.
          method: Name of the conditioning method.
          method_options: The method's own section; None for its defaults.
          schema: The data's schema.
          options: The task's own section, None where it has none.

        Raises:
          UserError: the task does not fit the data, or the method cannot be had.
        """

    @classmethod
    @abc.abstractmethod
    def positions_and_candidates(cls, options: Any, schema: Schema, length: int) -> Scored:
        """What is scored of a training example of that length, to estimate memory and time.

        Args:
          options: The task's own section, None where it has none.
          schema: The data's schema.
          length: The items or tokens of the example.
        """

    @classmethod
    @abc.abstractmethod
    def create(
        cls,
        config: ml_collections.ConfigDict,
        model: Any,
        schema: Schema,
        train: Split | None,
        options: Any,
    ) -> Self:
        """The task of a checked config; without a training split it can only predict."""

    @property
    @abc.abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics of an evaluation, in the order of its tables.

        The first one decides which checkpoint is the best; it is a mean over queries.
        """

    @property
    def in_tables(self) -> tuple[Metric, ...]:
        """The metrics that tables show; files have all of them."""
        return self.metrics

    def first_parameters(self, train: Split) -> dict[str, dict[str, np.ndarray]]:
        """Module to the parameters of it that begin neither random nor at zero.

        Args:
          train: The training split.
        """
        return {}

    def constants(self) -> dict[str, Any]:
        """What `batch` needs beside the examples; placed on the devices once."""
        return {}

    @abc.abstractmethod
    def batch(self, keys: Array, examples: Examples) -> Batch:
        """Masks and corrupts: a pure function of two keys `[2]` and this device's examples."""

    @abc.abstractmethod
    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """This device's part of the loss, and its metrics; devices' parts are added.

        The loss of an example counts as often as its weight says. It is divided by constants,
        not by what a batch happens to hold, so that grouping examples by length leaves its
        expectation as it is.
        """

    @abc.abstractmethod
    def queries(self, split: Any, masking: str) -> Queries:
        """What an evaluation asks about a split."""

    def asked(self, queries: Any) -> Queries:
        """The queries that `predict` answers for these: of a passage, one for each window."""
        return queries

    def joined(self, predictions: dict[str, np.ndarray], queries: Any) -> dict[str, np.ndarray]:
        """The predictions of `queries`, made of those of `asked(queries)`."""
        return predictions

    @abc.abstractmethod
    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """The predictions of Q queries; both arguments have their rows aligned.

        Args:
          params: The parameters.
          columns: The columns of each query's example, `[Q, ...]`.
          query: The queries' own columns.

        Returns:
          Name to values `[Q]`, or `[Q, ...]` where the task's own functions read them.
        """

    @abc.abstractmethod
    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: Any
    ) -> dict[str, np.ndarray]:
        """Every metric that is a mean over queries, of every query, `float64 [Q]`."""

    def corpus_metrics(self, predictions: dict[str, np.ndarray], queries: Any) -> CorpusMetrics:
        """The metrics that are no means over queries."""
        return without_sums(len(queries))

    def prediction_columns(
        self, predictions: dict[str, np.ndarray], queries: Any
    ) -> dict[str, Any]:
        """The columns of an evaluation's table that hold predictions, `[Q]` each."""
        return predictions

    def slices(self, split: Any) -> dict[str, dict[str, np.ndarray]]:
        """Name of a partition to its slices: a label to `bool [M]`, over the examples."""
        return {}

    @abc.abstractmethod
    def table(self, split: Any, queries: Any) -> dict[str, Any]:
        """The columns of an evaluation's table that say what each query asked."""

    @abc.abstractmethod
    def read_queries(self, columns: Mapping[str, np.ndarray]) -> Queries:
        """The queries of an evaluation's table, as far as metrics need them."""

    @abc.abstractmethod
    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The predictions of an evaluation's table, as far as metrics need them."""

    def calibration(
        self, predictions: dict[str, np.ndarray], queries: Any
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What is right or not, and its probability; None where calibration is not measured."""
        return None

    def label_counts(
        self, predictions: dict[str, np.ndarray], queries: Any
    ) -> LabelCounts | None:
        """How often each label is right, missed or predicted; None where there are none."""
        return None
