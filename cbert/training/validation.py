"""What a run is measured by while it trains."""

from collections.abc import Collection
from typing import Any

from cbert import parallel
from cbert.data.columns import Split
from cbert.errors import UserError
from cbert.tasks import prediction
from cbert.tasks.base import Task
from cbert.tasks.masked_queries import one_an_example


class Validation:
    """The task's metrics on the validation split, with the same queries every time."""

    def __init__(self, split: Split, task: Task, batch_size: int, masking: str) -> None:
        """Draws the queries, and puts the split on every device.

        Args:
          split: The examples, M of them; its columns are `[M, ...]`.
          task: What is measured.
          batch_size: Queries at a time, over all devices.
          masking: The masking of evaluations.

        Raises:
          UserError: the split has nothing to predict.
        """
        self._split, self._batch_size = split, batch_size
        try:
            self._queries = task.queries(split, one_an_example(masking))
        except UserError as error:
            raise UserError(f"validation: {error}") from None
        self._task, self._data = task, parallel.replicate(split.columns)

    def __call__(self, params: Any) -> dict[str, float]:
        """Every metric by its name, over all queries; see `prediction.metrics`.

        Args:
          params: Parameters of one seed on the devices, see `Placement`.

        Raises:
          UserError: a task of somebody's own lacks one of its metrics, or is decided by one
            that is no mean over queries.
        """
        predictions = prediction.predict_all(
            self._task, params, self._data, self._split, self._queries, self._batch_size
        )
        means = prediction.means(self._task, predictions, self._queries)
        measured = means | prediction.others(self._task, predictions, self._queries)
        _check_metrics(self._task, means, measured)
        return measured


def _check_metrics(task: Task, means: Collection[str], measured: Collection[str]) -> None:
    """Refuses a task some of whose metrics could not be shown or compared."""
    for metric in task.metrics:
        if metric.name not in measured:
            raise UserError(
                f"the task {task.name} has the metric {metric.name}, and metric_values does "
                "not give it; add it there, or leave it out of metrics"
            )
    decides = task.metrics[0].name
    if decides not in means:
        raise UserError(
            f"the first metric of the task {task.name} is {decides}, which is no mean over "
            f"queries; begin its metrics with one that metric_values gives: {', '.join(means)}"
        )
