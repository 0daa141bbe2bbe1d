"""A task with the parameters of a checkpoint."""

import dataclasses
import pathlib
from typing import Any

from cbert import tasks
from cbert.data.columns import Split
from cbert.model import placement
from cbert.schema import Schema
from cbert.tasks import prediction
from cbert.tasks.base import Queries, Task
from cbert.tasks.masked_queries import ONE, one_an_example
from cbert.tasks.prediction import Predictions
from cbert.training import config as config_lib
from cbert.training.checkpoint import read_params


@dataclasses.dataclass(frozen=True)
class Restored:
    """A task with the parameters of a checkpoint.

    Attributes:
      task: The task.
      step: The checkpoint's step.
      params: The parameters, on the devices.
      batch_size: Queries at a time.
      masking: What is masked where an example has one query, by the run's config.
    """

    task: Task
    step: int
    params: Any
    batch_size: int
    masking: str = ONE

    def predict(self, data: dict[str, Any], split: Split, queries: Queries) -> Predictions:
        """The predictions of all queries; `data` are the split's columns, replicated."""
        return prediction.predict_all(
            self.task, self.params, data, split, queries, self.batch_size
        )


def restore(workdir: pathlib.Path, config: Any, schema: Schema, which: str) -> Restored:
    """The run's task with the parameters of the checkpoint `which`."""
    model = config_lib.build_model(config, schema, sharded=True)
    where = placement.choose(model)
    step, params = read_params(workdir, which, model, where.to_restore)
    task = tasks.create(config, model, schema)
    masking = one_an_example(config.eval.masking)
    return Restored(task, step, where.to_devices(params), config.eval.batch_size, masking)
