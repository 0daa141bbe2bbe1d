"""Anybody's predictions for the queries of an evaluation, and whether a distribution has them.

Legend: Q queries, V candidates.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow

from cbert.errors import UserError, shown
from cbert.evaluation.evaluation import Evaluation
from cbert.tasks.classification import Classification
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_language import MaskedLanguage
from cbert.tasks.tagging import Tagging

ROUNDING = 1e-4  # How far float32 may leave probabilities and their logarithms.
_FLOAT, _WHOLE, _STRING = pyarrow.float64(), pyarrow.int64(), pyarrow.string()


@dataclasses.dataclass(frozen=True)
class Submission:
    """The predictions of a table, in the order of the queries.

    Attributes:
      path: The file.
      queries: The key of each query, `[Q]`.
      columns: The columns that the task's form names, each `[Q]`.
    """

    path: pathlib.Path
    queries: Sequence[tuple]
    columns: dict[str, np.ndarray]

    def refuse(self, wrong: np.ndarray, name: str, rule: str) -> None:
        """Raises `UserError` naming the first query where `wrong`, `bool [Q]`, is true."""
        if wrong.any():
            row = int(wrong.argmax())
            raise UserError(
                f"{self.path}: {name} of the query {named(self.queries[row])} is "
                f"{self.columns[name][row]}; {rule} ({wrong.sum():,} such rows)"
            )


def named(query: tuple) -> str:
    """A query's key as errors show it."""
    return ", ".join(shown(part) for part in query)


def check_log_probability(submission: Submission) -> None:
    """It is finite, and at most 0."""
    log_probability = submission.columns["log_probability"]
    wrong = ~np.isfinite(log_probability) | (log_probability > ROUNDING)
    submission.refuse(wrong, "log_probability", "it must be finite and at most 0, in nats")


def _check_ranks(submission: Submission, evaluation: Evaluation) -> None:
    """A candidate of rank r has at most the probability 1/r, and the first at least 1/V."""
    rank, size = submission.columns["rank"], len(evaluation.schema.items)
    rule = f"ranks go from 1 to {size:,}, the number of candidates"
    submission.refuse((rank < 1) | (rank > size), "rank", rule)
    log_probability = submission.columns["log_probability"]
    too_probable = log_probability + np.log(rank) > ROUNDING
    rule = "a candidate of that rank has at most the probability 1/rank"
    submission.refuse(too_probable, "log_probability", rule)
    too_improbable = (rank == 1) & (log_probability < -np.log(size) - ROUNDING)
    rule = f"the first of {size:,} candidates has at least the probability 1/{size}"
    submission.refuse(too_improbable, "log_probability", rule)


def _check_label(submission: Submission, evaluation: Evaluation) -> None:
    """The likeliest label's probability and the true label's must be of one distribution."""
    target = evaluation.schema.known_target
    read, size = submission.columns, len(target.values)
    unknown = target.encode_labels(list(read["prediction"])) < 0
    rule = f"it must be one of the {size} labels of the training split"
    submission.refuse(unknown, "prediction", rule)
    probability, own = read["probability"], np.exp(read["log_probability"])
    possible = (probability >= 1 / size - ROUNDING) & (probability <= 1 + ROUNDING)
    rule = f"the likeliest of {size} labels has a probability from 1/{size} to 1"
    submission.refuse(~possible, "probability", rule)
    labels = evaluation.task.table(evaluation.split, evaluation.queries)["label"]
    right = read["prediction"] == np.array(labels, object)
    rule = "the prediction is the true label, so this is the exponential of log_probability"
    submission.refuse(right & (np.abs(probability - own) > ROUNDING), "probability", rule)
    most = np.minimum(probability, 1 - probability) + ROUNDING
    rule = "the true label is too probable beside a likelier prediction of that probability"
    submission.refuse(~right & (own > most), "log_probability", rule)


def _check_tags(submission: Submission, evaluation: Evaluation) -> None:
    """Each word has a tag of the schema."""
    target = evaluation.schema.known_target
    predicted = submission.columns["prediction"]
    tags = evaluation.task.table(evaluation.split, evaluation.queries)["tags"]
    lengths = [len(one) != len(other) for one, other in zip(predicted, tags, strict=True)]
    rule = "give one tag for each word that the table of the test split has tags for"
    submission.refuse(np.array(lengths), "prediction", rule)
    unknown = [not target.codes.keys() >= set(one) for one in predicted]
    rule = f"each must be one of the {len(target.values)} tags of the training split"
    submission.refuse(np.array(unknown), "prediction", rule)


@dataclasses.dataclass(frozen=True)
class Form:
    """What a table must hold.

    Attributes:
      columns: Name to kind, beside the keys.
      check: Raises `UserError` where no distribution can give such predictions.
    """

    columns: dict[str, Any]
    check: Callable[[Submission, Evaluation], None]


_RANKED = Form({"log_probability": _FLOAT, "rank": _WHOLE}, _check_ranks)
FORMS = {
    MaskedItem.name: _RANKED,
    MaskedLanguage.name: _RANKED,
    Classification.name: Form(
        {"log_probability": _FLOAT, "prediction": _STRING, "probability": _FLOAT}, _check_label
    ),
    Tagging.name: Form(
        {"log_probability": _FLOAT, "prediction": pyarrow.list_(_STRING)}, _check_tags
    ),
}
