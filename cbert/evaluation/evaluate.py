"""Evaluating a run from its work directory: the model beside the baselines.

Legend: M examples, Q queries.
"""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert import files, parallel, tasks
from cbert.data import prepared
from cbert.errors import UserError
from cbert.evaluation import baselines, breakdown, feature_importance, metrics, text_baselines
from cbert.model import contextual_bert, placement
from cbert.schema import Schema, schema_file
from cbert.tasks import prediction
from cbert.tasks.base import Queries, Task
from cbert.training import checkpoint
from cbert.training import config as config_lib

MODEL = "model"


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
    """The options of an evaluation; an empty string takes the run's own value."""

    split: str = "test"
    checkpoint: str = checkpoint.BEST
    data_dir: str = ""
    name: str = ""
    masking: str = ""
    by: str = ""
    feature_importance: bool = False


Predictions = dict[str, np.ndarray]


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
    split: prepared.Split
    queries: Queries
    predictions: dict[str, Predictions]
    settings: dict[str, Any]
    name: str
    feature_importance: dict[str, Any] | None = None

    @property
    def groups(self) -> np.ndarray:
        """`int [Q]`, equal where the group is."""
        return metrics.group_codes(self.split.groups)[self.queries.rows]

    def values(self, predictor: str = MODEL) -> dict[str, np.ndarray]:
        """Every metric that is a mean over queries, of every query."""
        return self.task.metric_values(self.predictions[predictor], self.queries)

    def summarize(
        self, predictor: str = MODEL, inside: np.ndarray | None = None
    ) -> dict[str, dict[str, float | None]]:
        """Every metric that the predictor has, with its standard error, in the task's order.

        Args:
          predictor: The model or a baseline.
          inside: `bool [Q]`, the queries to take; None for all of them.
        """
        groups, weights = self.groups, self.queries.weights
        inside = np.ones(len(groups), bool) if inside is None else inside
        values = {name: column[inside] for name, column in self.values(predictor).items()}
        means = metrics.summarize(values, groups[inside], list(values), weights[inside])
        corpus = self.task.corpus_metrics(self.predictions[predictor], self.queries)
        known = {**means, **metrics.summarize_corpus(corpus, groups, inside)}
        names = [metric.name for metric in self.task.metrics]
        return {name: known[name] for name in names if name in known}


@dataclasses.dataclass(frozen=True)
class Restored:
    """A task with the parameters of a checkpoint.

    Attributes:
      task: The task.
      step: The checkpoint's step.
      params: The parameters, on the devices.
      batch_size: Queries at a time.
    """

    task: Task
    step: int
    params: Any
    batch_size: int

    def predict(
        self, data: dict[str, Any], split: prepared.Split, queries: Queries
    ) -> Predictions:
        """The predictions of all queries; `data` are the split's columns, replicated."""
        return prediction.predict_all(
            self.task, self.params, data, split, queries, self.batch_size
        )


def evaluate(workdir: str | pathlib.Path, options: EvaluationOptions) -> Evaluation:
    """Restores parameters, predicts the queries, and adds the baselines.

    Raises:
      UserError: the work directory, the checkpoint or the data are not what they must be.
    """
    workdir = pathlib.Path(workdir).expanduser()
    config = config_lib.load(workdir)
    schema = schema_file.load(workdir / "schema.json")
    if options.by:
        breakdown.check(schema.feature(options.by))
    data_dir, name = options.data_dir or config.data.dir, options.name or config.data.name
    task = tasks.create(config, config_lib.build_model(config, schema), schema)
    if options.masking and not task.masks:
        raise UserError(f"the task {task.name} masks nothing; evaluate without masking")
    own_masking = config.eval.masking if task.masks else ""
    masking = options.masking or own_masking
    split, queries, baseline_predictions = _query(
        task, data_dir, name, options.split, masking, schema
    )
    permutation = None
    if options.feature_importance:
        permutation = feature_importance.permutation_between_groups(split.groups, schema)
    restored = restore(workdir, config, schema, options.checkpoint)
    data = parallel.replicate(split.columns)
    predictions = {MODEL: restored.predict(data, split, queries), **baseline_predictions}
    importance = None
    if permutation is not None:
        drop = config.train.context_dropout > 0
        importance = feature_importance.measure(
            restored, data, split, schema, permutation, drop
        )
    settings = {
        "split": options.split,
        "masking": masking,
        "checkpoint": options.checkpoint,
        "data": name,
        "seed": config.seed,
    }
    own = {"masking": own_masking, "checkpoint": checkpoint.BEST}
    own["data"] = config.data.name
    others = [settings[field] for field, value in own.items() if settings[field] != value]
    return Evaluation(
        task=restored.task,
        method=config.model.method,
        step=restored.step,
        schema=schema,
        split=split,
        queries=queries,
        predictions=predictions,
        settings=settings,
        name="-".join([options.split, *others]),
        feature_importance=importance,
    )


def restore(workdir: pathlib.Path, config: Any, schema: Schema, which: str) -> Restored:
    """The run's task with the parameters of the checkpoint `which`."""
    model = config_lib.build_model(config, schema, split=True)
    where = placement.of(model)
    with checkpoint.Checkpoints(workdir, read_only=True) as checkpoints:
        step, params = checkpoints.restore_params(
            which, where.to_restore(contextual_bert.shapes(model))
        )
    task = tasks.create(config, model, schema)
    return Restored(task, step, where.place(params), config.eval.batch_size)


# Runs of a sweep are evaluated one after the other on the same queries.
_LAST_QUERIES: dict[tuple, tuple[prepared.Split, Queries, dict[str, Predictions]]] = {}


def _query(
    task: Task, data_dir: str, name: str, split_name: str, masking: str, schema: Schema
) -> tuple[prepared.Split, Queries, dict[str, Predictions]]:
    """Split, queries and the baselines' predictions: the same for all runs on the same data."""
    asked_for = type(task), data_dir, name, split_name, masking, schema
    if asked_for not in _LAST_QUERIES:
        split = prepared.load(data_dir, name, split_name, schema)
        queries = task.queries(split, masking)

        def load(other: str) -> prepared.Split | None:
            known = prepared.split_names(data_dir, name)
            return prepared.load(data_dir, name, other, schema) if other in known else None

        predictions = text_baselines.predictions(task, load, schema, split, queries)
        _LAST_QUERIES.clear()
        _LAST_QUERIES[asked_for] = split, queries, predictions
    return _LAST_QUERIES[asked_for]


def summary(evaluation: Evaluation, by: str = "") -> dict[str, Any]:
    """The result as JSON: each predictor's metrics, and the model's for each slice."""
    groups, queries = evaluation.groups, evaluation.queries
    result = {
        "task": evaluation.task.name,
        "method": evaluation.method,
        "step": evaluation.step,
        **evaluation.settings,
        "queries": len(queries),
        "skipped": queries.skipped,
        "groups": len(np.unique(groups)),
        "standard_errors": "over groups",
        "results": {
            predictor: evaluation.summarize(predictor) for predictor in evaluation.predictions
        },
    }
    for name, slices in evaluation.task.slices(evaluation.split).items():
        result[f"by_{name}"] = _by_slice(evaluation, slices)
    if by:
        feature = evaluation.schema.feature(by)
        slices = breakdown.by_feature(evaluation.split.contexts, feature)
        result[f"by_{by}"] = _by_slice(evaluation, slices)
    if evaluation.feature_importance is not None:
        result["feature_importance"] = evaluation.feature_importance
    return result


def _by_slice(evaluation: Evaluation, slices: dict[str, np.ndarray]) -> dict[str, Any]:
    """The model's metrics over the examples of each slice, `bool [M]`."""
    results = {}
    for label, rows in slices.items():
        inside = rows[evaluation.queries.rows]
        if inside.any():
            results[label] = {
                "queries": int(inside.sum()),
                **evaluation.summarize(inside=inside),
            }
    return results


def write(evaluation: Evaluation, result: dict[str, Any], workdir: str | pathlib.Path) -> None:
    """Writes `eval/<name>.json` and `eval/<name>.parquet`, one row a query.

    The importance of features, once measured of this checkpoint, stays in the JSON.
    """
    folder = pathlib.Path(workdir).expanduser() / "eval"
    folder.mkdir(exist_ok=True)
    table = pyarrow.table(columns(evaluation))
    parquet = folder / f"{evaluation.name}.parquet"
    files.replace(parquet, lambda path: pyarrow.parquet.write_table(table, path))
    # The JSON comes last, because it says that the run is evaluated.
    target = folder / f"{evaluation.name}.json"
    whole = {**_known_importance(target, result), **result}
    files.write_text(target, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def _known_importance(path: pathlib.Path, result: dict[str, Any]) -> dict[str, Any]:
    """The feature importance in an earlier file, if it is of the same step and settings."""
    try:
        known = json.loads(files.read_text(path))
    except (OSError, ValueError):
        return {}
    same = ("step", "split", "masking", "checkpoint", "data", "queries", "groups")
    if any(known.get(name) != result[name] for name in same):
        return {}
    name = "feature_importance"
    return {name: known[name]} if name in known else {}


def columns(evaluation: Evaluation) -> dict[str, Any]:
    """The columns of `eval/<name>.parquet`, a row a query."""
    split, queries = evaluation.split, evaluation.queries
    columns = {
        "id": [split.ids[row] for row in queries.rows],
        "group": [split.groups[row] for row in queries.rows],
        **evaluation.task.table(split, queries),
        "context": [split.contexts[row] for row in queries.rows],
    }
    for predictor, predictions in evaluation.predictions.items():
        prefix = "" if predictor == MODEL else baselines.column_prefix(predictor)
        shown = evaluation.task.prediction_columns(predictions, queries)
        columns |= {f"{prefix}{name}": values for name, values in shown.items()}
    return columns
