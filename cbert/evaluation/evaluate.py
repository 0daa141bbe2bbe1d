"""Evaluating a run from its work directory: the model beside the baselines."""

import contextlib
import dataclasses
import pathlib
from typing import Any

import ml_collections
import numpy as np

from cbert import parallel, tasks
from cbert.data import builder, column_cache, prepared
from cbert.data.columns import Split
from cbert.data.records import TEST, TRAIN
from cbert.errors import UserError, check_choice, shown, warn
from cbert.evaluation import breakdown, data_warnings, feature_importance, task_baselines
from cbert.evaluation.baselines import loader
from cbert.evaluation.evaluation import Evaluation
from cbert.evaluation.restore import Restored, restore
from cbert.registry import is_ours
from cbert.schema import Schema
from cbert.tasks.base import Queries, Task
from cbert.tasks.masked_queries import LAST, one_an_example
from cbert.tasks.prediction import Predictions
from cbert.training import checkpoint
from cbert.training import config as config_lib
from cbert.training import workdir as workdir_lib
from cbert.training.config_sections import EVAL_MASKINGS
from cbert.training.evaluations import MODEL


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
    """The options of an evaluation; an empty string takes the run's own value.

    Attributes:
      split: The split that is evaluated.
      checkpoint: `best`, `last` or a step.
      data_dir: Where prepared data sets lie.
      name: The prepared data.
      masking: What is asked about each example, one of `EVAL_MASKINGS`.
      by: Features whose values are slices.
      feature_importance: Whether it is measured.
    """

    split: str = TEST
    checkpoint: str = checkpoint.BEST
    data_dir: str = ""
    name: str = ""
    masking: str = ""
    by: tuple[str, ...] = ()
    feature_importance: bool = False


def evaluate(workdir: str | pathlib.Path, options: EvaluationOptions) -> Evaluation:
    """Restores parameters, predicts the queries, and adds the baselines.

    Raises:
      UserError: the work directory, the checkpoint or the data are not what they must be.
    """
    workdir = pathlib.Path(workdir).expanduser()
    config, schema = workdir_lib.read(workdir)
    task = tasks.create(config, config_lib.build_model(config, schema), schema)
    _check_options(options, task)
    settings, file_name = _settings(config, options, task)
    data_dir = options.data_dir or config.data.dir
    counted = _counted(data_dir, settings["data"], config.data.name)
    data_warnings.warn_of_data(
        data_dir, settings["data"], schema, config.data.name, counted, workdir
    )
    asks = _asks(task, config)
    split, queries, baseline_predictions = _query(
        task, asks, data_dir, settings, schema, counted
    )
    _warn(data_dir, settings, task, split, queries)
    for name in options.by:
        _check_slices(name, task, split, schema)
    permutation = _permutation(split, schema) if options.feature_importance else None
    restored = restore(workdir, config, schema, options.checkpoint)
    workdir_lib.warn_unfinished(workdir, restored.step, config.train.steps)
    data = parallel.replicate(split.columns)
    predictions = {MODEL: restored.predict(data, split, queries), **baseline_predictions}
    importance: dict[str, Any] | None = {} if options.feature_importance else None
    if permutation is not None:
        importance = _importance(restored, config, settings, data, split, permutation)
    return Evaluation(
        task=restored.task,
        method=config.model.method,
        step=restored.step,
        schema=schema,
        split=split,
        queries=queries,
        predictions=predictions,
        settings=settings,
        name=file_name,
        feature_importance=importance,
    )


def _check_options(options: EvaluationOptions, task: Task) -> None:
    """Refuses, before the data are read, what cannot be asked of the task or its features."""
    for name in options.by:
        breakdown.check(task.schema.feature(name))
    if options.masking and not task.masks:
        raise UserError(f"the task {task.name} masks nothing; evaluate without masking")
    if options.masking:
        check_choice("masking", options.masking, EVAL_MASKINGS)


def _warn(
    data_dir: str, settings: dict[str, Any], task: Task, split: Split, queries: Queries
) -> None:
    """Warns of what in the split makes its results mean less, or something else."""
    name, schema = settings["data"], task.schema
    data_warnings.warn_of_overlap(data_dir, name, schema, settings["masking"])
    title = f"the {settings['split']} split of {shown(name)}"
    data_warnings.warn_of_context(split, schema, title)
    if not task.masks:
        data_warnings.warn_of_targets(split, queries, schema, title)
    data_warnings.warn_of_groups(split, queries)


def _importance(
    restored: Restored,
    config: ml_collections.ConfigDict,
    settings: dict[str, Any],
    data: dict[str, Any],
    split: Split,
    permutation: np.ndarray,
) -> dict[str, Any]:
    """The importance of each feature of the context, measured with the restored model."""
    drop, reads = config.train.context_dropout > 0, config_lib.reads_context(config)
    masking = one_an_example(settings["masking"])
    return feature_importance.measure(
        restored, data, split, restored.task.schema, permutation, drop, reads, masking
    )


def _settings(
    config: ml_collections.ConfigDict, options: EvaluationOptions, task: Task
) -> tuple[dict[str, Any], str]:
    """What the result depends on beside the parameters, and the name of its files."""
    own = {
        "masking": config.eval.masking if task.masks else "",
        "checkpoint": checkpoint.BEST,
        "data": config.data.name,
    }
    chosen = {
        "masking": options.masking or own["masking"],
        "checkpoint": options.checkpoint,
        "data": options.name or own["data"],
    }
    # A data set may have the name of a checkpoint or of a masking, and `last` is one of each.
    texts = {**chosen, "data": f"on-{chosen['data']}"}
    if chosen["masking"] == LAST:
        texts["masking"] = "last-item"
    others = [texts[field] for field, value in own.items() if chosen[field] != value]
    settings = {"split": options.split, **chosen, "seed": config.seed}
    return settings, "-".join([options.split, *others])


def _permutation(split: Split, schema: Schema) -> np.ndarray | None:
    """What exchanges contexts between groups; None, with a warning, where nothing can."""
    try:
        return feature_importance.permutation_between_groups(split.groups, schema)
    except UserError as error:
        warn(f"{error}; all else is measured")
        return None


def _check_slices(by: str, task: Task, split: Split, schema: Schema) -> None:
    """Refuses a feature of too many values, before anything is compiled, or of a taken name."""
    breakdown.by_feature(split.contexts, schema.feature(by))
    if by in task.slices(split):
        raise UserError(
            f"the feature {by!r} has the name of slices that every evaluation has; prepare the "
            "data with another name for it"
        )


def _counted(data_dir: str, name: str, own: str) -> str:
    """The data whose training split baselines count; empty where there is none.

    Where new data are all for testing, it is what the model learned from, if that is there.
    """
    for data in (name, own):
        with contextlib.suppress(UserError):
            if TRAIN in prepared.split_names(data_dir, data):
                return data
    return ""


def _asks(task: Task, config: ml_collections.ConfigDict) -> tuple:
    """What decides, for some data, the queries of a task: the options of one's own, too."""
    return (type(task), "" if is_ours(type(task)) else config.task.to_json())


# Runs of a sweep are evaluated one after the other on the same queries.
_LAST_QUERIES: dict[tuple, tuple[Split, Queries, dict[str, Predictions]]] = {}


def _query(
    task: Task,
    asks: tuple,
    data_dir: str,
    settings: dict[str, Any],
    schema: Schema,
    counted: str,
) -> tuple[Split, Queries, dict[str, Predictions]]:
    """Split, queries and the baselines' predictions: the same for all runs on the same data."""
    name, masking = settings["data"], settings["masking"]
    # This path is another one once the data are prepared anew.
    stored = column_cache.location(builder.directory(data_dir, name), settings["split"], schema)
    asked_for = asks, masking, schema, stored, counted
    if asked_for not in _LAST_QUERIES:
        split = prepared.load(data_dir, name, settings["split"], schema)
        queries = task.queries(split, masking)
        load = loader(data_dir, counted or name, schema)
        predictions = task_baselines.predictions(task, load, schema, split, queries)
        _LAST_QUERIES.clear()
        _LAST_QUERIES[asked_for] = split, queries, predictions
    return _LAST_QUERIES[asked_for]
