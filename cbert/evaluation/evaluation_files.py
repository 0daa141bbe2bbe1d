"""What an evaluation writes: its metrics as JSON, and tables of its queries and its labels.

Legend: M examples.
"""

import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert import files
from cbert.evaluation import baselines, breakdown, label_tables
from cbert.evaluation.evaluation import Evaluation
from cbert.training import evaluations
from cbert.training.evaluations import MODEL


def summary(evaluation: Evaluation, by: Sequence[str] = ()) -> dict[str, Any]:
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
    for name in by:
        feature = evaluation.schema.feature(name)
        slices = breakdown.by_feature(evaluation.split.contexts, feature)
        result[f"by_{name}"] = _by_slice(evaluation, slices)
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
    """Writes `eval/<name>.json` and `eval/<name>.parquet`, one row a query, and CSV of labels.

    The importance of features, once measured of this checkpoint, stays in the JSON.
    """
    workdir, name = pathlib.Path(workdir).expanduser(), evaluation.name
    target = evaluations.path(workdir, name)
    target.parent.mkdir(exist_ok=True)
    table = pyarrow.table(columns(evaluation))
    parquet = target.with_suffix(".parquet")
    files.replace(parquet, lambda path: pyarrow.parquet.write_table(table, path))
    if evaluation.label_counts is not None:
        label_tables.write(evaluation.label_counts, workdir, name)
    # The JSON comes last, because it says that the run is evaluated.
    whole = {**_known_importance(evaluations.read(workdir, name) or {}, result), **result}
    files.write_text(target, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def _known_importance(known: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The feature importance of an earlier result of the same step, settings and data.

    Other data under the same name give the model another result.
    """
    same = ("step", "split", "masking", "checkpoint", "data", "queries", "groups")
    if any(known.get(name) != result[name] for name in same):
        return {}
    name, results = "feature_importance", known.get("results")
    measured = results.get(MODEL) if isinstance(results, dict) else None
    if name not in known or not _agree(measured, result["results"][MODEL]):
        return {}
    return {name: known[name]}


def _agree(measured: Any, own: Any) -> bool:
    """Whether two results are of one model; another processor rounds differently."""
    if isinstance(measured, dict) and isinstance(own, dict):
        same = measured.keys() == own.keys()
        return same and all(_agree(measured[name], own[name]) for name in own)
    if isinstance(measured, float) and isinstance(own, float):
        return math.isclose(measured, own, rel_tol=1e-3)
    return measured == own


def columns(evaluation: Evaluation) -> dict[str, Any]:
    """The columns of `eval/<name>.parquet`, a row a query."""
    split, queries = evaluation.split, evaluation.queries
    columns = {
        "id": split.record_ids(queries.rows),
        "group": [split.groups[row] for row in queries.rows],
        **evaluation.task.table(split, queries),
        "context": [split.contexts[row] for row in queries.rows],
    }
    for predictor, predictions in evaluation.predictions.items():
        prefix = "" if predictor == MODEL else baselines.column_prefix(predictor)
        shown = evaluation.task.prediction_columns(predictions, queries)
        columns |= {f"{prefix}{name}": values for name, values in shown.items()}
    return columns
