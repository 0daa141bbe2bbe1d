"""The facts on a model's card: data, method, metrics, intended use, limits."""

import pathlib
import subprocess
from typing import Any

from cbert.errors import UserError
from cbert.inference.predictor import Predictor
from cbert.inference.text_predictor import TextPredictor
from cbert.schema import Feature, Schema, schema_file
from cbert.training import evaluations
from cbert.training.evaluations import MODEL
from cbert.training.workdir import EVALUATIONS

# What Hugging Face calls a task, and the class of transformers that opens its model.
_IN_TRANSFORMERS = {
    "masked_language": ("fill-mask", "AutoModelForMaskedLM"),
    "classification": ("text-classification", "AutoModelForSequenceClassification"),
    "multi_label": ("text-classification", "AutoModelForSequenceClassification"),
    "regression": ("text-classification", "AutoModelForSequenceClassification"),
    "tagging": ("token-classification", "AutoModelForTokenClassification"),
    "span": ("question-answering", "AutoModelForQuestionAnswering"),
}
_SETTINGS = ("data", "masking", "queries", "groups", "standard_errors")


def facts(
    predictor: Predictor | TextPredictor, workdir: str | pathlib.Path, intended_use: str = ""
) -> dict[str, Any]:
    """The facts about a run's model, as JSON.

    Args:
      predictor: The run's, from `cbert.load`.
      workdir: The run's directory, for its results.
      intended_use: The intended use, if the default does not describe it.

    Raises:
      UserError: a result is not readable.
    """
    schema = predictor.schema
    return {
        "method": predictor.method,
        "task": predictor.task,
        "data": {
            "name": predictor.config.data.name,
            "kind": schema.kind,
            "items": len(schema.items),
            "max_items": schema.max_items,
            "features": {feature.name: feature.kind for feature in _features(predictor)},
        },
        "metrics": _metrics(pathlib.Path(workdir).expanduser(), predictor.step),
        "git_revision": _git_revision(),
        "intended_use": intended_use
        or f"{_use(predictor)}, drawn from the same population as the training data.",
        "limits": _limits(predictor),
    }


def as_markdown(facts: dict[str, Any], name: str) -> str:
    """The facts as a page, such as Hugging Face shows of a folder that has a `README.md`."""
    data = facts["data"]
    features = ", ".join(f"{feature} ({kind})" for feature, kind in data["features"].items())
    tag, class_name = _IN_TRANSFORMERS[facts["task"]]
    lines = [
        *("---", "library_name: transformers", "tags: [bert]"),
        *(f"pipeline_tag: {tag}", "---", "", f"# {name}", ""),
        *(f"{facts['intended_use']}", ""),
        f"Trained with cbert on the data set {data['name']}, by the method {facts['method']}. "
        f"Its vocabulary has {data['items']} entries, and it reads {data['max_items']} tokens.",
        *(["", f"Context features: {features}."] if features else []),
        *("", "```python", f"from transformers import {class_name}, AutoTokenizer", ""),
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
        f'model = {class_name}.from_pretrained("{name}")',
        "```",
        *("", "## Metrics", ""),
        *_metric_rows(facts["metrics"]),
        *("", "## Limits", ""),
        *(f"- {limit}" for limit in facts["limits"]),
    ]
    return "\n".join(lines) + "\n"


def _metric_rows(metrics: dict[str, Any]) -> list[str]:
    """A table of the metrics of each split, or a sentence that there are none."""
    rows = [
        f"| {split} | {metric} | {_cell(value['mean'])} | {_cell(value['standard_error'])} |"
        for split, measured in metrics.items()
        for metric, value in measured.items()
        if metric not in _SETTINGS
    ]
    if not rows:
        return ["No results of this step were measured."]
    head = ["| split | metric | mean | standard error |", "|---|---|---:|---:|"]
    return [*head, *rows]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _features(predictor: Predictor | TextPredictor) -> tuple[Feature, ...]:
    """The features that the model reads."""
    return predictor.schema.features if predictor.uses_context else ()


def _use(predictor: Predictor | TextPredictor) -> str:
    reads = bool(_features(predictor))
    if isinstance(predictor, TextPredictor):
        given = ", with the context features named here" if reads else ""
        return f"Texts for the task {predictor.task}{given}"
    given = ", given the context features named there" if reads else ""
    return f"Completing {predictor.schema.kind}s of the items in schema.json{given}"


def _metrics(workdir: pathlib.Path, step: int) -> dict[str, Any]:
    """Each split's metrics of this very step; those of another step would mislead."""
    metrics: dict[str, Any] = {}
    for path in sorted((workdir / EVALUATIONS).glob("*.json")):
        try:
            measured: Any = evaluations.read(workdir, path.stem)
            if measured["step"] == step:
                settings = {name: measured[name] for name in _SETTINGS}
                metrics[path.stem] = {**settings, **measured["results"][MODEL]}
        except (KeyError, TypeError):
            raise UserError(f"{path}: not a result; run experiments.evaluate again") from None
    return metrics


def _limits(predictor: Predictor | TextPredictor) -> list[str]:
    schema, of_texts = predictor.schema, isinstance(predictor, TextPredictor)
    own = _text_limits(schema) if of_texts else _item_limits(schema)
    limits = [
        *own,
        "Its probabilities say what occurred together in the training data, not what is good, "
        "safe or available, and they repeat whatever bias those data have.",
    ]
    if schema.features and predictor.uses_context and predictor.outside_training:
        limits.append(
            "It was trained without context dropout: with features missing that were given "
            "throughout training, its predictions are extrapolations."
        )
    return limits


def _item_limits(schema: Schema) -> list[str]:
    return [
        f"It knows the {len(schema.items)} items of schema.json; it takes others as unknown "
        "and never proposes them.",
        f"Its data had at most {schema.max_items} items at a time.",
    ]


def _text_limits(schema: Schema) -> list[str]:
    return [
        f"It reads the first {schema.max_items} tokens of a text, by its own "
        "vocabulary, and nothing beyond them.",
    ]


def _git_revision() -> str | None:
    """The revision of this code, with -dirty where it was changed; None outside its tree."""
    git = ["git", "-C", str(pathlib.Path(schema_file.__file__).parent)]
    options: dict[str, Any] = {"check": True, "capture_output": True, "text": True}
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", "schema_file.py"], **options)
        describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run([*git, *describe], **options).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
