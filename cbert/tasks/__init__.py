"""The tasks: one file each, one line here."""

import ml_collections

from cbert.data.columns import Split
from cbert.model.contextual_bert import ContextualBert
from cbert.schema import Schema
from cbert.tasks.base import Task
from cbert.tasks.masked_item import MaskedItem

TASKS: dict[str, type[MaskedItem]] = {
    "masked_item": MaskedItem,  # name the masked items of a set or a sequence
}


def create(
    config: ml_collections.ConfigDict,
    model: ContextualBert,
    schema: Schema,
    train: Split | None = None,
) -> Task:
    """The task of a checked config.

    Args:
      config: The config of a run.
      model: Its model.
      schema: The data's schema.
      train: The training split; without it the task can predict but not train.

    Raises:
      UserError: there is nothing in the training split to learn from.
    """
    return TASKS[config.task.name].create(config, model, schema, train)
