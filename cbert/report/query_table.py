"""The queries of an evaluation and their metrics, read from `eval/<split>.parquet`.

Legend: Q queries, M examples, G groups.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert.errors import UserError, one_line
from cbert.evaluation import metrics
from cbert.evaluation.baselines import column_prefix
from cbert.evaluation.measured import Measured, measure
from cbert.report.run_directory import RunDirectory
from cbert.tasks import ranking
from cbert.tasks.base import Queries, Task
from cbert.tasks.label_counts import LabelCounts
from cbert.tasks.label_metrics import reliability
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.metric import Metric
from cbert.training import evaluations
from cbert.training.evaluations import MODEL

CONTEXT = "context"


def reported(task: Task) -> tuple[Metric, ...]:
    """The metrics that a report's page shows; its files have all.

    Of masked items they are those of the paper's Table 1, and those that a task adds.
    """
    left_out = ranking.METRICS[4:] if isinstance(task, MaskedItem) else ()
    return tuple(metric for metric in task.in_tables if metric not in left_out)


@dataclasses.dataclass(frozen=True)
class Reported(Measured):
    """The metrics of one run, or of a baseline.

    Attributes:
      reliability: See `label_metrics.reliability`; None where calibration is not measured.
      label_counts: How often each label is right; None for a task without labels.
    """

    reliability: np.ndarray | None
    label_counts: LabelCounts | None


@dataclasses.dataclass(frozen=True)
class QueryTable:
    """The queries, which are the same for all runs, and the metrics of the baselines.

    Attributes:
      run: The run whose table was read.
      key: `[Q]` rows that identify the queries: what each query asked, see `Task.table`.
      groups: `int [Q]`, equal for queries of the same group.
      weights: `float64 [Q]`, what each query weighs in a mean.
      examples: `int [Q]`, an index into `contexts`.
      contexts: `[M]`, the context of each example as JSON text.
      visible: `int [Q]`, the number of items that the model saw; None for texts.
      baselines: Baseline to its metrics.
    """

    run: RunDirectory
    key: pyarrow.Table
    groups: np.ndarray
    weights: np.ndarray
    examples: np.ndarray
    contexts: list[str]
    visible: np.ndarray | None
    baselines: dict[str, Reported]

    def __len__(self) -> int:
        return len(self.groups)

    @functools.cached_property
    def fractions(self) -> np.ndarray:
        """See `metrics.fractions`, `float64 [G]`."""
        return metrics.fractions(self.groups, self.weights)


@dataclasses.dataclass(frozen=True)
class _Columns(Mapping[str, np.ndarray]):
    """The columns of a table whose names begin with a prefix; read where they are asked for."""

    table: pyarrow.Table
    path: pathlib.Path
    prefix: str = ""

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            full = repr(self.prefix + name)
            raise UserError(f"{self.path}: lacks the column {full}; evaluate the run again")
        return self.table[self.prefix + name].to_numpy()

    def __contains__(self, name: object) -> bool:
        return f"{self.prefix}{name}" in self.table.column_names

    def __iter__(self) -> Iterator[str]:
        names = (name for name in self.table.column_names if name.startswith(self.prefix))
        return (name.removeprefix(self.prefix) for name in names)

    def __len__(self) -> int:
        return len(list(iter(self)))


def read_queries(run: RunDirectory) -> QueryTable:
    """Reads the queries of one run; raises `UserError` when its table is damaged."""
    path, table = _read(run)
    ids = table["id"].to_numpy()  # Objects: strings of NumPy are all as long as the longest.
    _, first, examples = np.unique(ids, return_index=True, return_inverse=True)
    queries = run.task.read_queries(_Columns(table, path))
    visible = "visible_items"
    results = (run.evaluation or {})["results"]
    return QueryTable(
        run=run,
        key=_key(table),
        groups=metrics.group_codes(table["group"].to_numpy()),
        weights=queries.weights,
        examples=examples,
        contexts=table[CONTEXT].take(pyarrow.array(first)).to_pylist(),
        visible=table[visible].to_numpy() if visible in table.column_names else None,
        baselines={
            name: _measured(run.task, queries, _Columns(table, path, column_prefix(name)))
            for name in results
            if name != MODEL
        },
    )


def read_metrics(run: RunDirectory, queries: QueryTable) -> Reported:
    """The metrics of a run.

    Raises:
      UserError: the table is damaged, or its queries are not `queries`.
    """
    path, table = _read(run)
    if not _key(table).equals(queries.key):
        raise UserError(
            f"{queries.run.path} and {run.path} were evaluated on different queries; evaluate "
            "both on the same prepared data"
        )
    columns = _Columns(table, path)
    return _measured(run.task, run.task.read_queries(columns), columns)


def _key(table: pyarrow.Table) -> pyarrow.Table:
    """The columns that come before the context and the predictions."""
    return table.select(table.column_names[: table.column_names.index(CONTEXT)])


def _read(run: RunDirectory) -> tuple[pathlib.Path, pyarrow.Table]:
    """The file and its content."""
    assert run.evaluation is not None
    name, count = run.evaluation["split"], run.evaluation["queries"]
    path = evaluations.path(run.path, name).with_suffix(".parquet")
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        reason = one_line(error)[:80]
        raise UserError(f"{path}: damaged ({reason}); evaluate the run again") from None
    if len(table) != count:
        raise UserError(
            f"{path}: {len(table)} rows where {name}.json says {count} queries; evaluate the "
            "run again"
        )
    for column in ("id", "group", CONTEXT):
        if column not in table.column_names:
            raise UserError(f"{path}: lacks the column {column!r}; evaluate the run again")
        if table[column].type != pyarrow.string() or table[column].null_count:
            raise UserError(
                f"{path}: the column {column!r} is not text in every row; evaluate the run "
                "again"
            )
    return path, table


def _measured(task: Task, queries: Queries, columns: _Columns) -> Reported:
    predictions = task.read_predictions(columns)
    measured = measure(task, predictions, queries)
    calibration = task.calibration(predictions, queries)
    return Reported(
        measured.values,
        measured.corpus,
        measured.weights,
        None if calibration is None else reliability(*calibration),
        task.label_counts(predictions, queries),
    )
