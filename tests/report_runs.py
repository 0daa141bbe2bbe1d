"""Run directories like those of a sweep, written file by file instead of trained."""

import json
import pathlib

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert.schema import SET, Categorical, Numerical, Schema, schema_file
from cbert.training import config as config_lib
from tests.conftest import small

TIME = "<b>time|$x_1$</b>"
VALUES = ("<i>noon</i> & 5%", "night|_~^\\")
OTHERS = 297  # Items that no query asks for.
SCHEMA = Schema(
    SET,
    4,
    ("<script>alert(1)</script>", "b & c", "d|e", *(f"item {one}" for one in range(OTHERS))),
    (9, 5, 3, *[1] * OTHERS),
    (Categorical(TIME, 4, VALUES), Numerical("age", 4)),
)
EXAMPLES, ITEMS = 80, 2
STEPS = (3, 6)
BASELINES = (
    *("popularity", "popularity given context"),
    *("Bayes-optimal without context", "Bayes-optimal"),
)


def queries(split: str = "test") -> dict[str, list]:
    """Eighty sets of twenty groups, every third with one more visible item."""
    rows = np.repeat(np.arange(EXAMPLES), ITEMS)
    contexts = [
        {TIME: VALUES[row % 2], "age": None if row % 7 == 0 else 20 + row % 40}
        for row in range(EXAMPLES)
    ]
    return {
        "id": [f"{split}-{row}" for row in rows],
        "group": [f"person {row % 20}" for row in rows],
        "position": [index % ITEMS for index in range(len(rows))],
        "item": [SCHEMA.items[index % 3] for index in range(len(rows))],
        "visible_items": [1 + (row % 3 == 0) for row in rows],
        "context": [json.dumps(contexts[row]) for row in rows],
    }


def write_run(
    directory: pathlib.Path,
    method: str,
    seed: int,
    gain: float = 0.0,
    *,
    name: str = "",
    split: str = "test",
    schema: Schema = SCHEMA,
    asked_queries: dict[str, list] | None = None,
    finished: bool = True,
    evaluated: bool = True,
    feature_importance: dict | None = None,
    settings: dict | None = None,
    bayes_optimal: bool = True,
    **overrides,
) -> pathlib.Path:
    """Writes DIRECTORY/NAME; the gain, in nats, is added to random log-probabilities."""
    config = small(method, seed=seed, **overrides)
    path = directory / (name or f"{method}-{seed}")
    (path / "eval").mkdir(parents=True)
    config_lib.save(config, path)
    schema_file.save(schema, path / "schema.json")
    _write_metrics(path, seed, gain, finished)
    if evaluated:
        table = asked_queries or queries(split)
        count, groups = len(table["id"]), len(set(table["group"]))
        table = {**table, **_predictions(count, [*map(ord, method), seed], gain, bayes_optimal)}
        pyarrow.parquet.write_table(pyarrow.table(table), path / "eval" / f"{split}.parquet")
        summary = {
            **{"method": method, "step": 6, "split": split, "masking": "each", "seed": seed},
            **{"checkpoint": "best", "data": config.data.name, "skipped": 2},
            **{"queries": count, "groups": groups},
            "results": {name: {} for name in ("model", *BASELINES[: 2 + 2 * bayes_optimal])},
            **(settings or {}),
        }
        if feature_importance is not None:
            summary["feature_importance"] = feature_importance
        (path / "eval" / f"{split}.json").write_text(json.dumps(summary), encoding="utf-8")
    return path


def _write_metrics(path: pathlib.Path, seed: int, gain: float, finished: bool) -> None:
    rows = [{"step": 2, "split": "train", "loss": 4.0}]
    for step in STEPS if finished else STEPS[:1]:
        loss = 4.0 - 0.1 * step - gain + 0.01 * seed
        rows.append({"step": step, "split": "validation", "cross_entropy": loss})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (path / "metrics.jsonl").write_text(text, encoding="utf-8")
    if finished:
        best = {"step": 6, "best": rows[-1]["cross_entropy"], "best_step": 6}
        (path / "finished.json").write_text(json.dumps(best), encoding="utf-8")


def _predictions(
    count: int, noise: list[int], gain: float, bayes_optimal: bool
) -> dict[str, np.ndarray]:
    columns = {}
    sources = {"": (noise, gain), "popularity_": ([1], -1.0)}
    sources["popularity_given_context_"] = [2], -0.5
    if bayes_optimal:
        sources["bayes_optimal_"] = [3], 1.5
        sources["bayes_optimal_without_context_"] = [4], 0.7
    for prefix, (seeds, ahead) in sources.items():
        random = np.random.default_rng(seeds)
        log_probability = -4 + ahead + random.normal(0, 0.5, count)
        rank = 1 + random.geometric(0.01 * np.exp(ahead), count)
        columns[f"{prefix}log_probability"] = log_probability.astype(np.float32)
        if "without" not in prefix:
            columns[f"{prefix}rank"] = rank.astype(np.int32)
    return columns


def importance(permuted: float, dropped: float | None = None) -> dict:
    """The importance of both features; that of the second is half that of the first."""

    def one(value):
        return value if value is None else {"mean": value, "standard_error": 0.01}

    return {
        TIME: {"permuted": one(permuted), "dropped": one(dropped)},
        "age": {"permuted": one(permuted / 2), "dropped": one(dropped and dropped / 2)},
    }
