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
from cbert.schema import Schema
from cbert.tasks.base import Queries, Task
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.prediction import Predictions

MODEL = "model"


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
      feature_importance: See `feature_importance.measure`; None if not measured.
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

    def values(self, predictor: str = MODEL) -> dict[str, np.ndarray]:
        """Every metric that is a mean over queries, of every query."""
        return self._measured(predictor)[0]

    def _measured(self, predictor: str) -> tuple[dict[str, np.ndarray], metrics.CorpusMetrics]:
        """The metrics of every query, and those that are no means; made once, for slices."""
        if predictor not in self._known:
            made = self.predictions[predictor], self.queries
            values, corpus = self.task.metric_values(*made), self.task.corpus_metrics(*made)
            self._known[predictor] = values, corpus
        return self._known[predictor]

    @functools.cached_property
    def _known(self) -> dict[str, Any]:
        return {}

    def summarize(
        self, predictor: str = MODEL, inside: np.ndarray | None = None
    ) -> dict[str, Summary]:
        """Every metric that the predictor has, with its standard error, in the task's order.

        Queries that weigh nothing, such as texts whose tags are all unknown, have no means.

        Args:
          predictor: The model or a baseline.
          inside: `bool [Q]`, the queries to take; None for all of them.
        """
        groups, weights = self.groups, self.queries.weights
        inside = np.ones(len(groups), bool) if inside is None else inside
        values, corpus = self._measured(predictor)
        weighed = weights[inside].any()
        values = {name: column[inside] for name, column in values.items() if weighed}
        means = metrics.summarize(values, groups[inside], weights[inside])
        known = {**means, **metrics.summarize_corpus(corpus, groups, inside, weights)}
        names = [metric.name for metric in self.task.metrics]
        return {name: known[name] for name in names if name in known}
