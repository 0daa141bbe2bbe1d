"""The metrics of one predictor, of every query and over many.

Legend: Q queries.
"""

import dataclasses

import numpy as np

from cbert.evaluation import metrics
from cbert.evaluation.intervals import Summary
from cbert.tasks.base import Queries, Task
from cbert.tasks.metric import CorpusMetrics
from cbert.tasks.prediction import Predictions

# What metrics of somebody's own may raise over predictions that lack what they need.
MISFITS = (AttributeError, IndexError, KeyError, TypeError, ValueError)


@dataclasses.dataclass(frozen=True)
class Measured:
    """The metrics of a model or of a baseline.

    Attributes:
      values: Each metric that is a mean over queries, `float64 [Q]`.
      corpus: The metrics that are no means.
      weights: `float64 [Q]`, what each query weighs in a mean.
    """

    values: dict[str, np.ndarray]
    corpus: CorpusMetrics
    weights: np.ndarray

    def every(self) -> CorpusMetrics:
        """All metrics, the means among them, as functions of sums over queries."""
        columns = [*(self.weights * column for column in self.values.values()), self.weights]

        def means(sums: np.ndarray) -> dict[str, np.ndarray]:
            return {name: sums[..., n] / sums[..., -1] for n, name in enumerate(self.values)}

        return CorpusMetrics(np.stack(columns, axis=1), means) + self.corpus

    def whole(self) -> dict[str, float]:
        """Each metric over all queries."""
        return self.every()(np.ones(len(self.weights)))

    def summarize(
        self, groups: np.ndarray, inside: np.ndarray | None = None
    ) -> dict[str, Summary]:
        """Every metric with its standard error over groups.

        Queries that weigh nothing, such as texts whose tags are all unknown, have no means.

        Args:
          groups: `int [Q]`.
          inside: `bool [Q]`, the queries to take; None for all of them.
        """
        inside = np.ones(len(groups), bool) if inside is None else inside
        weights, own = self.weights[inside], groups[inside]
        means = self.values.items() if weights.any() else ()
        return {
            **{name: metrics.estimate(x[inside], own, weights).summary() for name, x in means},
            **metrics.summarize_corpus(self.corpus, groups, inside, self.weights),
        }


def measure(task: Task, predictions: Predictions, queries: Queries) -> Measured:
    """The metrics of a task that the predictions of Q queries have."""
    values = task.metric_values(predictions, queries)
    return Measured(values, task.corpus_metrics(predictions, queries), queries.weights)
