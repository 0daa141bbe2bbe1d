"""The tasks of the leaderboard, and the metrics of anybody's predictions for them.

docs/leaderboard.md has the rules. Legend: Q queries.
"""

import collections
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow

from cbert import tasks
from cbert.data import prepared
from cbert.data.records import TEST
from cbert.errors import UserError
from cbert.evaluation import breakdown, intervals, metrics, submission_file
from cbert.evaluation.evaluation import Evaluation
from cbert.evaluation.evaluation_files import columns
from cbert.evaluation.intervals import Estimate
from cbert.schema import Feature
from cbert.tasks.masked_queries import EACH, ONE
from cbert.training import config as config_lib
from cbert.training.evaluations import MODEL

SPLIT, UNKNOWN = TEST, "(unknown)"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A task of the leaderboard, whose prepared data have its name unless `data` is another.

    Attributes:
      task: The task that a run has, see `tasks.TASKS`.
      by: A feature whose values show where the context decides.
      fingerprint: That of the test split, see `fingerprint`.
      masking: What is masked, where something is: `one` or `each`.
      data: The name of the prepared data.
    """

    task: str
    by: str
    fingerprint: str
    masking: str = ""
    data: str = ""


BENCHMARKS = {
    "speeches": Benchmark("masked_language", "decade", "b49853ca47776c38", ONE),
    "sgd_acts": Benchmark("classification", "system_acts", "e3254d895407a8e8"),
    "sgd_slots": Benchmark("tagging", "system_acts", "620de344a94d4058"),
    "restaurant8k": Benchmark("tagging", "requested_slots", "4ac7046273716ffe"),
    "meals": Benchmark("masked_item", "occasion", "b31dc1aa7b9a0d1b", EACH),
    "stylist": Benchmark(
        "masked_item", "occasion", "a0e95d21040a9644", EACH, "stylist_quickstart"
    ),
}


def ask(benchmark: Benchmark, data_dir: str, data: str) -> Evaluation:
    """The queries of the test split of prepared data, without any predictions.

    Raises:
      UserError: there are no such data, or they are of another task.
    """
    config = config_lib.default()
    config.task.name, config.model.method = benchmark.task, "none"
    schema = prepared.load_schema(data_dir, data)
    task = tasks.create(config, config_lib.build_model(config, schema), schema)
    split = prepared.load(data_dir, data, SPLIT, schema)
    settings = {"split": SPLIT, "masking": benchmark.masking, "data": data}
    queries = task.queries(split, benchmark.masking)
    asked = Evaluation(task, "", 0, schema, split, queries, {}, settings, SPLIT)
    table = pyarrow.table(columns(asked))
    # Predictions of a table are read in the form of queries of a table.
    read: Any = task.read_queries({name: table[name].to_numpy() for name in table.column_names})
    same = dataclasses.replace(read, rows=queries.rows, skipped=queries.skipped)
    return dataclasses.replace(asked, queries=same)


def queries(asked: Evaluation) -> pyarrow.Table:
    """A row a query, as `evaluate` writes it, without predictions.

    Of a masked item or token the column `shown` lists all that a model sees, in order: null is
    the masked one, and `UNKNOWN` one that is not in the vocabulary.
    """
    table = pyarrow.table(columns(asked))
    if not asked.task.masks:
        return table
    names = np.array([*asked.schema.items, UNKNOWN], object)
    shown = []
    for row, position in zip(
        asked.queries.rows, asked.queries.columns["positions"], strict=True
    ):
        codes = asked.split.items[row, : asked.split.lengths[row]]
        shown.append(names[np.maximum(codes, -1)].tolist())
        shown[-1][position] = None
    return table.append_column("shown", pyarrow.array(shown))


def fingerprint(asked: Evaluation) -> str:
    """A hash of all that is asked: 16 hexadecimal digits, whatever the order of the queries.

    It covers ids, groups, contexts, what each query shows and asks, and the candidates.
    """
    schema = asked.schema
    candidates = schema.items if asked.task.masks else schema.known_target.values
    lines = sorted(json.dumps(query, sort_keys=True) for query in queries(asked).to_pylist())
    text = "\n".join([json.dumps(list(candidates)), *lines])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def score(asked: Evaluation, paths: Sequence[pathlib.Path]) -> list[Evaluation]:
    """The checked predictions of several tables, a seed each.

    Raises:
      UserError: a table cannot be taken (see `submission_file.read`), or two are the same.
    """
    scored: list[Evaluation] = []
    wanted = submission_file.Asked(asked)
    for path in paths:
        read = submission_file.read(path, wanted)
        predictions = asked.task.read_predictions(read.columns)
        for other, before in zip(paths, scored, strict=False):
            own = predictions["log_probability"]
            if np.array_equal(before.predictions[MODEL]["log_probability"], own):
                raise UserError(
                    f"{other} and {path} hold the same predictions; give a table a seed"
                )
        scored.append(dataclasses.replace(asked, predictions={MODEL: predictions}))
    return scored


def estimates(
    scored: Sequence[Evaluation], inside: np.ndarray | None = None
) -> dict[str, Estimate]:
    """Each metric's mean over seeds, whose error carries seeds and groups.

    With one seed it carries the groups alone; see `intervals.two_level`.

    Args:
      scored: The seeds.
      inside: `bool [Q]`, the queries to take; None for all of them.
    """
    every = [one.measured[MODEL].every() for one in scored]
    by_seed = [one.summarize(inside=inside) for one in scored]
    influences = [metrics.influence(each, scored[0].groups, inside) for each in every]
    fractions = metrics.fractions(scored[0].groups, scored[0].queries.weights, inside)
    return {
        name: intervals.two_level(
            np.array([seed[name]["mean"] for seed in by_seed]),
            np.stack([of_seed[name] for of_seed in influences]),
            fractions,
        )
        for name in by_seed[0]
    }


def slices(asked: Evaluation, feature: Feature) -> dict[str, np.ndarray]:
    """The queries by a feature's values, and the ambiguous ones: label to `bool [Q]`."""
    by_value = breakdown.by_feature(asked.split.contexts, feature)
    parts = {label: rows[asked.queries.rows] for label, rows in by_value.items()}
    parts["ambiguous texts"] = ambiguous(asked)
    weights = asked.queries.weights
    return {label: inside for label, inside in parts.items() if weights[inside].any()}


def ambiguous(asked: Evaluation) -> np.ndarray:
    """The queries whose text also occurs with another label or other tags, `bool [Q]`.

    No model that reads the text alone has all of them right. Masked tokens have none.
    """
    table = asked.task.table(asked.split, asked.queries)
    truth = table.get("label") or table.get("tags")
    if not truth:
        return np.zeros(len(asked.queries), bool)
    truths = collections.defaultdict(set)
    texts = list(zip(table["text"], table.get("text_b", table["text"]), strict=True))
    for text, true in zip(texts, truth, strict=True):
        truths[text].add(str(true))
    return np.array([len(truths[text]) > 1 for text in texts])
