"""A file of predictions, read and matched with the queries of an evaluation.

Legend: Q queries.
"""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterable

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from cbert.data.tables import check_unique
from cbert.errors import UserError, shown
from cbert.evaluation.evaluation import Evaluation
from cbert.evaluation.evaluation_files import columns
from cbert.evaluation.submission import FORMS, Submission, check_log_probability, named

KEYS = ("id", "position")  # Those that the queries have name a query.
SEPARATOR = "|"  # Between the tags of a sentence in one CSV cell.


@dataclasses.dataclass(frozen=True)
class Asked:
    """What files of predictions answer.

    Attributes:
      evaluation: The evaluation; its predictions are not read.
    """

    evaluation: Evaluation

    @functools.cached_property
    def table(self) -> pyarrow.Table:
        """A row a query."""
        return pyarrow.table(columns(self.evaluation))

    @functools.cached_property
    def names(self) -> list[str]:
        """The columns that name a query."""
        return [name for name in KEYS if name in self.table.column_names]

    @functools.cached_property
    def keys(self) -> list[tuple]:
        """The keys of the queries, `[Q]`; raises `UserError` where two are the same."""
        found = _rows(self.table[name] for name in self.names)
        query, count = collections.Counter(found).most_common(1)[0]
        if count > 1:
            raise UserError(
                f"the split has {count} queries {named(query)}; give each record an id of its "
                "own"
            )
        return found


def _rows(parts: Iterable[pyarrow.ChunkedArray]) -> list[tuple]:
    """The rows of some columns."""
    return list(zip(*(part.to_pylist() for part in parts), strict=True))


def read(path: pathlib.Path, asked: Asked) -> Submission:
    """Reads and checks the answers to an evaluation's queries.

    Args:
      path: A Parquet or CSV file, its rows in any order.
      asked: What is asked.

    Raises:
      UserError: the file is damaged, or is not about these queries; or it holds what no
        distribution can give.
    """
    task = asked.evaluation.task.name
    if task not in FORMS:
        raise UserError(f"the task {task} has no form of tables")
    form, table = FORMS[task], _read(path)
    table = table.take(_order(path, table, asked))
    _check_queries(path, table, asked)
    read = {name: _column(path, table, name, kind) for name, kind in form.columns.items()}
    for name, column in read.items():
        if column.null_count:
            raise UserError(
                f"{path}: {name} is missing in {column.null_count:,} rows; fill them in"
            )
    values = {name: column.to_numpy() for name, column in read.items()}
    submission = Submission(path, asked.keys, values)
    check_log_probability(submission)
    form.check(submission, asked.evaluation)
    return submission


def _read(path: pathlib.Path) -> pyarrow.Table:
    """The table; every column of a CSV file is a string."""
    try:
        if path.name.lower().endswith((".csv", ".csv.gz")):
            options = pyarrow.csv.ParseOptions(newlines_in_values=True)
            with pyarrow.csv.open_csv(path, parse_options=options) as opened:
                names = opened.schema.names
            strings = pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string())
            )
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


def _order(path: pathlib.Path, table: pyarrow.Table, asked: Asked) -> list[int]:
    """The row of each query, `[Q]`."""
    wanted, known = asked.keys, set(asked.keys)
    given = _rows(_column(path, table, name, asked.table[name].type) for name in asked.names)
    rows = {query: row for row, query in enumerate(given)}
    faults = {
        "missing": [query for query in wanted if query not in rows],
        "extra": [query for query in rows if query not in known],
        "double": [query for query, n in collections.Counter(given).items() if n > 1],
    }
    counted = [
        f"{len(queries):,} {fault}, such as {named(queries[0])}"
        for fault, queries in faults.items()
        if queries
    ]
    if counted:
        raise UserError(
            f"{path}: {'; '.join(counted)}; give each of the {len(wanted):,} queries one row, "
            f"named by {' and '.join(asked.names)}"
        )
    return [rows[query] for query in wanted]


def _check_queries(path: pathlib.Path, table: pyarrow.Table, asked: Asked) -> None:
    """What the table says of the queries, such as the text and its label, must be so."""
    for field in asked.table.schema:
        if field.name not in table.column_names:
            continue
        given = _column(path, table, field.name, field.type).to_pylist()
        right = asked.table[field.name].to_pylist()
        for query, one, other in zip(asked.keys, given, right, strict=True):
            if one != other:
                raise UserError(
                    f"{path}: {field.name} of the query {named(query)} is {shown(one)}, and "
                    f"in the prepared data {shown(other)}; answer the queries of the same data"
                )
