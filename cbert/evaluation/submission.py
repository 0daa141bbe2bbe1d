"""A table of predictions, of any model: read, matched with the queries it answers, and checked.

Legend: Q queries, V candidates, T labels.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from cbert.data.tables import check_unique
from cbert.errors import UserError, shown
from cbert.evaluation.evaluate import Evaluation, columns
from cbert.tasks.classification import Classification
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_language import MaskedLanguage
from cbert.tasks.tagging import Tagging

KEYS = ("id", "position")  # Of these the columns that a task's queries have name a query.
SEPARATOR = "|"  # Between the tags of a sentence in one CSV cell.
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
                f"{self.path}: {name} of the query {_named(self.queries[row])} is "
                f"{self.columns[name][row]}; {rule} ({wrong.sum():,} such rows)"
            )


def read(path: pathlib.Path, evaluation: Evaluation) -> Submission:
    """Reads and checks the answers to an evaluation's queries.

    Args:
      path: A Parquet or CSV file, its rows in any order.
      evaluation: What is asked; its predictions are not read.

    Raises:
      UserError: the file is damaged, or is not about these queries; or it holds what no
        distribution can give.
    """
    if evaluation.task.name not in FORMS:
        raise UserError(f"the task {evaluation.task.name} has no form of tables")
    form, asked = FORMS[evaluation.task.name], pyarrow.table(columns(evaluation))
    table = _read(path)
    wanted = keys(asked)
    table = table.take(_order(path, table, asked, wanted))
    _check_questions(path, table, asked, wanted)
    read = {name: _column(path, table, name, kind) for name, kind in form.columns.items()}
    for name, column in read.items():
        if column.null_count:
            raise UserError(
                f"{path}: {name} is missing in {column.null_count:,} rows; fill them in"
            )
    submission = Submission(path, wanted, {name: c.to_numpy() for name, c in read.items()})
    _check_log_probability(submission)
    form.check(submission, evaluation)
    return submission


def keys(asked: pyarrow.Table) -> list[tuple]:
    """The keys of the queries, `[Q]`; raises `UserError` where two are the same."""
    names = [name for name in KEYS if name in asked.column_names]
    found = list(zip(*(asked[name].to_pylist() for name in names), strict=True))
    query, count = collections.Counter(found).most_common(1)[0]
    if count > 1:
        raise UserError(
            f"the split has {count} queries {_named(query)}; give each record an id of its own"
        )
    return found


def _read(path: pathlib.Path) -> pyarrow.Table:
    """The table; every column of a CSV file is a string."""
    try:
        if path.name.lower().endswith((".csv", ".csv.gz")):
            options = pyarrow.csv.ParseOptions(newlines_in_values=True)
            with pyarrow.csv.open_csv(path, parse_options=options) as opened:
                names = opened.schema.names
            strings = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, _STRING))
            table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=strings)
        else:
            table = pyarrow.parquet.ParquetFile(path).read()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(
            f"{path}: cannot be read ({shown(str(error))}); give a .parquet or a .csv file"
        ) from None
    check_unique(table.column_names, path)
    return table


def _column(
    path: pathlib.Path, table: pyarrow.Table, name: str, kind: pyarrow.DataType
) -> pyarrow.ChunkedArray:
    """A column as the kind that it must be of."""
    if name not in table.column_names:
        has = ", ".join(table.column_names)
        raise UserError(f"{path}: lacks the column {name!r}; it has {has}")
    column = table[name]
    try:
        if pyarrow.types.is_list(kind) and pyarrow.types.is_string(column.type):
            column = pyarrow.compute.split_pattern(column, SEPARATOR)
        return column.cast(kind)
    except pyarrow.ArrowException as error:
        raise UserError(
            f"{path}: the column {name!r} is {column.type} and cannot be read as {kind} "
            f"({shown(str(error))}); write it so"
        ) from None


def _order(
    path: pathlib.Path, table: pyarrow.Table, asked: pyarrow.Table, wanted: list[tuple]
) -> list[int]:
    """The row of each query, `[Q]`."""
    names = [name for name in KEYS if name in asked.column_names]
    parts = (_column(path, table, name, asked.schema.field(name).type) for name in names)
    given = list(zip(*(part.to_pylist() for part in parts), strict=True))
    rows = {query: row for row, query in enumerate(given)}
    known = set(wanted)
    faults = {
        "missing": [query for query in wanted if query not in rows],
        "extra": [query for query in rows if query not in known],
        "double": [query for query, n in collections.Counter(given).items() if n > 1],
    }
    counted = [
        f"{len(queries):,} {fault}, such as {_named(queries[0])}"
        for fault, queries in faults.items()
        if queries
    ]
    if counted:
        raise UserError(
            f"{path}: {'; '.join(counted)}; give each of the {len(wanted):,} queries one row, "
            f"named by {' and '.join(names)}"
        )
    return [rows[query] for query in wanted]


def _named(query: tuple) -> str:
    return ", ".join(shown(part) for part in query)


def _check_questions(
    path: pathlib.Path, table: pyarrow.Table, asked: pyarrow.Table, wanted: list[tuple]
) -> None:
    """What the table says of the queries, such as the text and its label, must be so."""
    for field in asked.schema:
        if field.name not in table.column_names:
            continue
        given = _column(path, table, field.name, field.type).to_pylist()
        for query, one, other in zip(wanted, given, asked[field.name].to_pylist(), strict=True):
            if one != other:
                raise UserError(
                    f"{path}: {field.name} of the query {_named(query)} is {shown(one)}, and "
                    f"in the prepared data {shown(other)}; answer the queries of the same data"
                )


def _check_log_probability(submission: Submission) -> None:
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
    target = evaluation.schema.target
    assert target is not None
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
    target = evaluation.schema.target
    assert target is not None
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
