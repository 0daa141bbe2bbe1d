"""The tasks: one file each, one line here."""

from typing import Any

import ml_collections

from cbert import config as config_fields
from cbert.data.columns import Split
from cbert.errors import UserError
from cbert.registry import Registry
from cbert.schema import Schema
from cbert.tasks.base import Task
from cbert.tasks.classification import Classification
from cbert.tasks.likeness import ASKED, alike
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_language import MaskedLanguage
from cbert.tasks.multi_label import MultiLabel
from cbert.tasks.regression import Regression
from cbert.tasks.span import Span
from cbert.tasks.tagging import Tagging
from cbert.tasks.text_task import TextTask

_OF_CBERT: tuple[type[Task], ...] = (
    MaskedItem,  # name the masked items of a set or a sequence
    MaskedLanguage,  # name the masked tokens of a text: BERT's pretraining
    Classification,  # give a text or a pair of texts one label
    MultiLabel,  # say of each label whether a text or a pair has it
    Regression,  # give a text or a pair a number
    Tagging,  # give each word of a text a tag
    Span,  # find the answer to a question in a passage
)
TASKS: Registry[Task] = Registry(
    "task", Task, {task.name: task for task in _OF_CBERT}, fields=("name",)
)
# What makes a model and its predictions.
_MODEL = ("build_model", "head", "predict")


def extended(task: type[Task]) -> str:
    """The name of the task here that a task is, or extends, else its own name.

    One that extends another keeps its model and predictions.
    """
    base = extends(task)
    return task.name if base is None or changed(task, base) else base.name


def extends(task: type[Task]) -> type[Task] | None:
    """The task here that a task is or extends, whatever it keeps of it; None for another."""
    return next((each for each in task.__mro__ if each in _OF_CBERT), None)


def changed(task: type[Task], base: type[Task], measured: bool = False) -> list[str]:
    """The members by which a task cannot be used as the one that it extends.

    Args:
      task: The class.
      base: The class that it extends.
      measured: Whether it must also ask the same, so that other predictions can be measured
        beside its own.
    """
    names = _MODEL + (ASKED if measured else ())
    return [name for name in names if not alike(task, base, (name,))]


def of_target(kind: str) -> str:
    """The name of the task here that learns a target of that kind."""
    texts = (task for task in _OF_CBERT if issubclass(task, TextTask))
    return next(task.name for task in texts if task.target == kind)


def config_sections() -> dict[str, type]:
    """The config section of each task that has one, by the task's name."""
    return {name: task.Config for name, task in TASKS.items() if task.Config}


def task_class(config: ml_collections.ConfigDict) -> type[Task]:
    """The class of a checked config's task."""
    return TASKS[config.task.name]


def task_options(config: ml_collections.ConfigDict) -> Any:
    """The section of a checked config's task, None where it has none."""
    section = task_class(config).Config
    return config_fields.read(config, f"task.{config.task.name}", section) if section else None


def create(
    config: ml_collections.ConfigDict,
    model: Any,
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
    if train is not None and not train.mean_weight:
        raise UserError(
            "every training example has the weight 0; give some of the records another 'weight'"
        )
    return task_class(config).create(config, model, schema, train, task_options(config))
