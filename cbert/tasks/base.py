"""What a task is: how examples become a batch, what the loss is, and how it is evaluated.

Legend: B examples of one device's part of a batch, Q queries of an evaluation.

The encoder knows tokens and context, a head knows what is asked, and a task knows the rest.
Training, evaluation and prediction are written against `Task` alone.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol

import jax
import numpy as np
import scipy.sparse
from flax import struct

Array = jax.Array
# Metric name to its sum and to the count that the sum is divided by in the end.
Metrics = dict[str, tuple[Array, Array]]
Batch = dict[str, Any]


@struct.dataclass
class Examples:
    """The examples of one device's part of the global batch, as they were prepared.

    Attributes:
      columns: Trees of arrays with a leading axis B: `items` or `text`, `context`, targets.
      constants: Trees of what a task needs beside the examples, the same for every step.
      index: `int32 [B]`, the position of each example in the global batch. Whatever is drawn
        for an example depends on it, not on the device that holds the example.
      batch_size: The number of examples of the global batch.
    """

    columns: dict[str, Any]
    constants: dict[str, Any]
    index: Array
    batch_size: int = struct.field(pytree_node=False)


def weighted(values: Array, columns: Mapping[str, Any]) -> Array:
    """Losses or counts `[B, ...]` times the weights of their examples, where these have any."""
    weight = columns.get("weight")
    return values if weight is None else values * weight.reshape(-1, *[1] * (values.ndim - 1))


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric: its name, its better direction, and how it is shown.

    Attributes:
      name: As in `metrics.jsonl` and in evaluations.
      best: Whether the smallest value is the best, or the largest.
      heading: As in tables and at the terminal.
      percent: Whether it is a fraction that is shown in percent.
    """

    name: str
    best: Literal["min", "max"]
    heading: str
    percent: bool = False

    def improves(self, value: float, best: float) -> bool:
        """Whether a value is better than the best one so far."""
        return value < best if self.best == "min" else value > best

    @property
    def title(self) -> str:
        """The heading of a column, with the unit."""
        return f"{self.heading} %" if self.percent else self.heading

    @property
    def unit(self) -> str:
        """The unit, empty where there is none."""
        if self.percent:
            return "%"
        return "nats" if self.name == "cross_entropy" else ""

    @property
    def scale(self) -> int:
        """What values are multiplied by to be shown."""
        return 100 if self.percent else 1

    @property
    def digits(self) -> int:
        """The digits after the point that are shown."""
        return 2 if self.percent else 4

    def text(self, value: float) -> str:
        """The value as a person reads it."""
        return f"{value:.2%}" if self.percent else f"{value:.4f}"


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
class CorpusMetrics:
    """Metrics that are no means over queries, but functions of sums over them, such as an F1.

    Sums also serve the slices of a split, and the influence of its groups.

    Attributes:
      statistics: `float64 [Q, K]`, what each query adds to the sums; it may be sparse.
      measure: Sums `[..., K]` to each metric, `[...]`.
    """

    statistics: Any
    measure: Callable[[np.ndarray], dict[str, np.ndarray]]

    def __call__(self, weights: np.ndarray) -> dict[str, float]:
        """The metrics where each query counts as often as `float64 [Q]` says."""
        measured = self.measure(weights @ self.statistics)
        return {name: float(value) for name, value in measured.items()}

    def __add__(self, other: "CorpusMetrics") -> "CorpusMetrics":
        """The metrics of both."""
        both = self.statistics, other.statistics
        if any(map(scipy.sparse.issparse, both)):
            statistics = scipy.sparse.hstack(both, format="csr")
        else:
            statistics = np.hstack(both)
        own = self.statistics.shape[1]

        def measure(sums: np.ndarray) -> dict[str, np.ndarray]:
            return {**self.measure(sums[..., :own]), **other.measure(sums[..., own:])}

        return CorpusMetrics(statistics, measure)


def no_corpus_metrics(count: int) -> CorpusMetrics:
    """The `CorpusMetrics` of Q queries of a task all of whose metrics are means."""
    return CorpusMetrics(np.zeros((count, 0)), lambda sums: {})


class Task(Protocol):
    """One job of a model.

    Attributes:
      model: The Flax module of encoder and head.
      name: Its name in configs and evaluations.
      metrics: All metrics of an evaluation, in the order of its tables; the first one decides
        which checkpoint is the best.
      shown: The names of those that a person sees after a validation.
      masks: Whether an evaluation masks something, and `eval.masking` says what.
      Config: Its section `task.<name>` of a config, a frozen dataclass; None for no section.
    """

    name: ClassVar[str]
    shown: ClassVar[tuple[str, ...]]
    masks: ClassVar[bool]
    Config: ClassVar[type | None]

    @property
    def model(self) -> Any: ...

    @property
    def metrics(self) -> tuple[Metric, ...]: ...

    def __hash__(self) -> int:
        """Equal tasks share compiled programs."""
        ...

    def constants(self) -> dict[str, Any]:
        """What `batch` needs beside the examples; placed on the devices once."""
        ...

    def batch(self, key: Array, examples: Examples) -> Batch:
        """Masks and corrupts: a pure function."""
        ...

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """This device's part of the loss, and its metrics; devices' parts are added.

        The loss of an example counts as often as its weight says. It is divided by constants,
        not by what a batch happens to hold, so that grouping examples by length leaves its
        expectation as it is.
        """
        ...

    def queries(self, split: Any, masking: str) -> Queries:
        """What an evaluation asks about a split."""
        ...

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
        ...

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: Any
    ) -> dict[str, np.ndarray]:
        """Every metric that is a mean over queries, of every query, `float64 [Q]`."""
        ...

    def corpus_metrics(self, predictions: dict[str, np.ndarray], queries: Any) -> CorpusMetrics:
        """The metrics that are no means over queries."""
        ...

    def prediction_columns(
        self, predictions: dict[str, np.ndarray], queries: Any
    ) -> dict[str, Any]:
        """The columns of an evaluation's table that hold predictions, `[Q]` each."""
        ...

    def slices(self, split: Any) -> dict[str, dict[str, np.ndarray]]:
        """Name of a partition to its slices: a label to `bool [M]`, over the examples."""
        ...

    def table(self, split: Any, queries: Any) -> dict[str, Any]:
        """The columns of an evaluation's table that say what each query asked."""
        ...

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> Queries:
        """The queries of an evaluation's table, as far as metrics need them."""
        ...

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The predictions of an evaluation's table, as far as metrics need them."""
        ...

    def calibration(
        self, predictions: dict[str, np.ndarray], queries: Any
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What is right or not, and its probability; None where calibration is not measured."""
        ...
