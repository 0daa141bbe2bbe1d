"""The predictions of a run and of the baselines for the same queries, and their metrics.

Legend: Q queries.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from cbert.data.columns import Split
from cbert.evaluation import metrics
from cbert.evaluation.intervals import Summary
from cbert.evaluation.measured import Measured, measure
from cbert.schema import Schema
from cbert.tasks.base import Queries, Task
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.prediction import Predictions
from cbert.training.evaluations import MODEL


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The predictions of one run and of the baselines for the same queries.

    Attributes:
      task: The run's task.
      method: The run's conditioning method.
      step: The checkpoint's step.
      schema: The checkpoint's schema.
      split: The split, encoded by it.
      queries: Q queries.
      predictions: Predictor (`model` or a baseline) to what it predicts, see `Task.predict`.
      settings: Everything else that the result depends on.
      name: The name of its files: the split, and each setting that is not the run's own.
      feature_importance: See `feature_importance.measure`; None if not asked for,
        and empty where the data do not allow it.
    """

    task: Task
    method: str
    step: int
    schema: Schema
    split: Split
    queries: Queries
    predictions: dict[str, Predictions]
    settings: dict[str, Any]
    name: str
    feature_importance: dict[str, Any] | None = None

    @functools.cached_property
    def groups(self) -> np.ndarray:
        """`int [Q]`, equal where the group is."""
        return metrics.group_codes(self.split.groups)[self.queries.rows]

    @functools.cached_property
    def label_counts(self) -> LabelCounts | None:
        """How often the model has each label right; None for a task without labels."""
        return self.task.label_counts(self.predictions[MODEL], self.queries)

    @functools.cached_property
    def measured(self) -> dict[str, Measured]:
        """The metrics of each predictor."""
        return {
            predictor: measure(self.task, predictions, self.queries)
            for predictor, predictions in self.predictions.items()
        }

    def summarize(
        self, predictor: str = MODEL, inside: np.ndarray | None = None
    ) -> dict[str, Summary]:
        """Every metric that the predictor has, with its standard error, in the task's order.

        Args:
          predictor: The model or a baseline.
          inside: `bool [Q]`, the queries to take; None for all of them.
        """
        known = self.measured[predictor].summarize(self.groups, inside)
        names = [metric.name for metric in self.task.metrics]
        return {name: known[name] for name in names if name in known}
