"""Evaluating a run from its work directory: the model beside the baselines."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert import files, parallel
from cbert.data import source
from cbert.evaluation import baselines, breakdown, feature_importance, metrics, questions
from cbert.model import contextual_bert
from cbert.schema import Schema, schema_file
from cbert.training import checkpoint
from cbert.training import config as config_lib

MODEL = "model"


@dataclasses.dataclass(frozen=True)
class Options:
    """What to evaluate; empty strings take the run's own."""

    split: str = "test"
    checkpoint: str = checkpoint.BEST
    data_dir: str = ""
    name: str = ""
    masking: str = ""
    by: str = ""
    feature_importance: bool = False


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The answers of one run and of the baselines to the same questions.

    Attributes:
      method: The run's conditioning method.
      step: The checkpoint's step.
      schema: The checkpoint's schema.
      split: The split, encoded by it.
      asked: Q questions.
      answers: Answerer (`model` or a baseline) to log-probability and rank, each `[Q]`.
      settings: What else the result depends on.
      name: Of its files: the split, and what was asked for in place of the run's own.
      feature_importance: See `feature_importance.measure`; None if not measured.
    """

    method: str
    step: int
    schema: Schema
    split: source.Split
    asked: questions.Questions
    answers: dict[str, tuple[np.ndarray, np.ndarray]]
    settings: dict[str, Any]
    name: str
    feature_importance: dict[str, Any] | None = None

    @property
    def groups(self) -> np.ndarray:
        """`int [Q]`, equal where the group is."""
        return metrics.group_codes(self.split.groups)[self.asked.rows]

    def values(self, answerer: str = MODEL) -> dict[str, np.ndarray]:
        """Every metric of every question."""
        return metrics.per_query(*self.answers[answerer])


def evaluate(workdir: str | pathlib.Path, options: Options) -> Evaluation:
    """Restores parameters, asks the questions, and adds the baselines.

    Raises:
      UserError: the work directory, the checkpoint or the data are not what they must be.
    """
    workdir = pathlib.Path(workdir).expanduser()
    config = config_lib.load(workdir)
    schema = schema_file.load(workdir / "schema.json")
    if options.by:
        breakdown.check(schema.feature(options.by))
    data_dir, name = options.data_dir or config.data.dir, options.name or config.data.name
    masking = options.masking or config.eval.masking
    split, asked, controlled = _ask(data_dir, name, options.split, masking, schema)
    permutation = None
    if options.feature_importance:
        permutation = feature_importance.permutation_between_groups(split.groups, schema)
    step, ask = restore(workdir, config, schema, options.checkpoint)
    data = parallel.replicate(split.columns)
    answers = {MODEL: ask(data, split, asked), **controlled}
    importance = None
    if permutation is not None:
        drop = config.train.context_dropout > 0
        importance = feature_importance.measure(ask, data, split, schema, permutation, drop)
    settings = {
        "split": options.split,
        "masking": masking,
        "checkpoint": options.checkpoint,
        "data": name,
        "seed": config.seed,
    }
    own = {"masking": config.eval.masking, "checkpoint": checkpoint.BEST}
    own["data"] = config.data.name
    others = [settings[field] for field, value in own.items() if settings[field] != value]
    file_name = "-".join([options.split, *others])
    method = config.model.method
    return Evaluation(
        method, step, schema, split, asked, answers, settings, file_name, importance
    )


def restore(
    workdir: pathlib.Path, config: Any, schema: Schema, which: str
) -> tuple[int, Callable]:
    """The restored step, and `ask(data, split, asked)`.

    That gives the model's log-probability and rank of each question; `data` are the split's
    columns, replicated.
    """
    model = config_lib.build_model(config, schema)
    with checkpoint.Checkpoints(workdir, read_only=True) as checkpoints:
        step, params = checkpoints.restore_params(
            which, parallel.replicated(contextual_bert.shapes(model))
        )
    answer = questions.make_answer(model)

    def ask(data: dict, split: source.Split, asked: questions.Questions) -> tuple:
        return questions.answer_all(answer, params, data, split, asked, config.eval.batch_size)

    return step, ask


@functools.lru_cache(maxsize=1)
def _ask(
    data_dir: str, name: str, split_name: str, masking: str, schema: Schema
) -> tuple[source.Split, questions.Questions, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Split, questions and the baselines' answers: the same for all runs on the same data."""
    split = source.load(data_dir, name, split_name, schema)
    asked = questions.make(split, masking)
    found = {baselines.POPULARITY: baselines.predict_popularity(schema, asked)}
    splits = source.split_names(data_dir, name)
    if schema.features and "train" in splits:
        train = source.load(data_dir, name, "train", schema)
        validation = None
        if "validation" in splits:
            validation = source.load(data_dir, name, "validation", schema)
        given_context = baselines.GivenContext(train, validation, schema)
        found[baselines.GIVEN_CONTEXT] = given_context.predict(split, asked)
    if split.reference is not None:
        found[baselines.BAYES_OPTIMAL] = tuple(
            split.reference[part][asked.rows, asked.places]
            for part in ("log_probability", "rank")
        )
    return split, asked, found


def summary(evaluation: Evaluation, by: str = "") -> dict[str, Any]:
    """The result as JSON: each answerer's metrics, and the model's in parts."""
    groups, asked = evaluation.groups, evaluation.asked
    found = {
        "method": evaluation.method,
        "step": evaluation.step,
        **evaluation.settings,
        "questions": len(asked),
        "skipped": asked.skipped,
        "groups": len(np.unique(groups)),
        "standard_errors": "over groups",
        "results": {
            answerer: metrics.summarize(evaluation.values(answerer), groups)
            for answerer in evaluation.answers
        },
        "by_visible_items": _parts(evaluation, breakdown.by_visible_items(evaluation.split)),
    }
    if by:
        feature = evaluation.schema.feature(by)
        found[f"by_{by}"] = _parts(
            evaluation, breakdown.by_feature(evaluation.split.contexts, feature)
        )
    if evaluation.feature_importance is not None:
        found["feature_importance"] = evaluation.feature_importance
    return found


def _parts(evaluation: Evaluation, parts: dict[str, np.ndarray]) -> dict[str, Any]:
    """The model's metrics over the examples of each part, `bool [M]`."""
    groups, found = evaluation.groups, {}
    values = evaluation.values()
    for label, rows in parts.items():
        inside = rows[evaluation.asked.rows]
        if inside.any():
            part = {name: column[inside] for name, column in values.items()}
            found[label] = {
                "questions": int(inside.sum()),
                **metrics.summarize(part, groups[inside]),
            }
    return found


def write(evaluation: Evaluation, found: dict[str, Any], workdir: str | pathlib.Path) -> None:
    """Writes `eval/<name>.json` and `eval/<name>.parquet`, one row a question.

    Feature importance that was measured of this checkpoint before stays in the JSON.
    """
    folder = pathlib.Path(workdir).expanduser() / "eval"
    folder.mkdir(exist_ok=True)
    table = pyarrow.table(_rows(evaluation))
    parquet = folder / f"{evaluation.name}.parquet"
    files.replace(parquet, lambda path: pyarrow.parquet.write_table(table, path))
    # Last, for it says that the run is evaluated.
    target = folder / f"{evaluation.name}.json"
    text = json.dumps(
        {**_known_importance(target, found), **found}, indent=1, ensure_ascii=False
    )
    files.write_text(target, text + "\n")


def _known_importance(path: pathlib.Path, found: dict[str, Any]) -> dict[str, Any]:
    """The feature importance in an earlier file, if it is of the same step and settings."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    same = ("step", "split", "masking", "checkpoint", "data", "questions", "groups")
    if "feature_importance" not in known or any(
        known.get(name) != found[name] for name in same
    ):
        return {}
    return {"feature_importance": known["feature_importance"]}


def _rows(evaluation: Evaluation) -> dict[str, Any]:
    split, asked = evaluation.split, evaluation.asked
    columns = {
        "id": [split.ids[row] for row in asked.rows],
        "group": [split.groups[row] for row in asked.rows],
        "place": asked.places,
        "item": [evaluation.schema.items[item] for item in asked.items],
        "visible_items": split.lengths[asked.rows] - 1,
        "context": [split.contexts[row] for row in asked.rows],
    }
    for answerer, (log_probability, rank) in evaluation.answers.items():
        prefix = "" if answerer == MODEL else baselines.column_prefix(answerer)
        columns[f"{prefix}rank"] = rank
        columns[f"{prefix}log_probability"] = log_probability
    return columns
