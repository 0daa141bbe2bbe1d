"""The baselines of each task."""

from collections.abc import Callable

from cbert import tasks
from cbert.data.columns import Split
from cbert.errors import warn
from cbert.evaluation import baselines, target_baselines, text_baselines
from cbert.evaluation.baselines import Load
from cbert.evaluation.measured import MISFITS, measure
from cbert.schema import Schema
from cbert.tasks.base import Queries, Task
from cbert.tasks.likeness import MEASURES, alike
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

    A warning says why a task that extends another lacks those of that one.

    Args:
      task: The task.
      load: Another split by its name, None where there is none.
      schema: The schema.
      split: The split that is evaluated.
      queries: The queries about it.
    """
    base, own = tasks.extends(type(task)), type(task)
    if base is None:
        return {}
    if changes := tasks.changed(own, base, measured=True):
        warn(
            f"the task {task.name} has no baselines, because its {changes[0]} is not that of "
            f"{base.name}"
        )
        return {}
    made = BASELINES[base.name](load, schema, split, queries)
    if alike(own, base, MEASURES):
        return made
    return {name: one for name, one in made.items() if _is_measured(task, name, one, queries)}


def _is_measured(task: Task, name: str, made: Predictions, queries: Queries) -> bool:
    """Whether a task with metrics of its own can measure a baseline; else a warning says so."""
    try:
        measure(task, made, queries)
    except MISFITS as error:  # A baseline may have no rank, for instance.
        warn(
            f"the baseline {name} is left out, because the metrics of the task {task.name} "
            f"need more than it predicts ({type(error).__name__}: {error})"
        )
        return False
    return True
