"""The baselines of each task."""

from collections.abc import Callable

from cbert import tasks
from cbert.data.columns import Split
from cbert.evaluation import baselines, target_baselines, text_baselines
from cbert.evaluation.baselines import Load
from cbert.schema import Schema
from cbert.tasks.base import Queries, Task
from cbert.tasks.prediction import Predictions

# The name of a task to the function that makes its baselines' predictions.
BASELINES: dict[str, Callable[..., dict[str, Predictions]]] = {
    tasks.MaskedItem.name: baselines.of_items,
    tasks.MaskedLanguage.name: text_baselines.of_tokens,
    tasks.Classification.name: text_baselines.of_labels,
    tasks.MultiLabel.name: target_baselines.of_label_lists,
    tasks.Regression.name: target_baselines.of_numbers,
    tasks.Tagging.name: target_baselines.of_tags,
    tasks.Span.name: target_baselines.of_spans,
}


def predictions(
    task: Task, load: Load, schema: Schema, split: Split, queries: Queries
) -> dict[str, Predictions]:
    """The predictions of each baseline of a task, or of the one that it extends.

    Args:
      task: The task.
      load: Another split by its name, None where there is none.
      schema: The schema.
      split: The split that is evaluated.
      queries: The queries about it.
    """
    made = BASELINES.get(tasks.extended(type(task), measured=True))
    return made(load, schema, split, queries) if made else {}
