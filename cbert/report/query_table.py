"""The queries of an evaluation and their metrics, read from `eval/<split>.parquet`.

A query is one masked item of one example.

Legend: Q queries, M examples.
"""

import dataclasses

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert.errors import UserError
from cbert.evaluation import metrics
from cbert.evaluation.baselines import (
    BAYES_OPTIMAL,
    GIVEN_CONTEXT,
    POPULARITY,
    column_prefix,
)
from cbert.report.run_directory import RunDirectory
from cbert.tasks import ranking

# The paper's Table 1 has these four.
TITLES = {metric.name: metric.title for metric in ranking.METRICS[:4]}
REPORTED_METRICS = tuple(TITLES)
BASELINES = (POPULARITY, GIVEN_CONTEXT, BAYES_OPTIMAL)
_KEY = ("id", "group", "position", "item")
MetricValues = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class QueryTable:
    """The queries, which are the same for all runs, and the metrics of the baselines.

    Attributes:
      run: The run whose table was read.
      key: `[Q]` rows that identify the queries.
      groups: `int [Q]`, equal for queries of the same group.
      examples: `int [Q]`, an index into `contexts`.
      contexts: `[M]`, the context of each example as JSON text.
      visible: `int [Q]`, the number of items that the model saw.
      baselines: Baseline to metric to `float64 [Q]`.
    """

    run: RunDirectory
    key: pyarrow.Table
    groups: np.ndarray
    examples: np.ndarray
    contexts: list[str]
    visible: np.ndarray
    baselines: dict[str, MetricValues]

    def __len__(self) -> int:
        return len(self.groups)


def read_queries(run: RunDirectory) -> QueryTable:
    """Reads the queries of one run; raises `UserError` when its table is damaged."""
    table = _read(run)
    _, first, examples = np.unique(
        _strings(table, "id"), return_index=True, return_inverse=True
    )
    return QueryTable(
        run=run,
        key=table.select(_KEY),
        groups=metrics.group_codes(_strings(table, "group")),
        examples=examples,
        contexts=table["context"].take(pyarrow.array(first)).to_pylist(),
        visible=table["visible_items"].to_numpy(),
        baselines={
            name: _metric_values(table, column_prefix(name))
            for name in BASELINES
            if f"{column_prefix(name)}rank" in table.column_names
        },
    )


def read_metrics(run: RunDirectory, queries: QueryTable) -> MetricValues:
    """The metrics of each query, `float64 [Q]`.

    Raises:
      UserError: the table is damaged, or its queries are not `queries`.
    """
    table = _read(run)
    if not table.select(_KEY).equals(queries.key):
        raise UserError(
            f"{queries.run.path} and {run.path} were evaluated on different queries; evaluate "
            "both on the same prepared data"
        )
    return _metric_values(table, "")


def _read(run: RunDirectory) -> pyarrow.Table:
    assert run.evaluation is not None
    name, count = run.evaluation["split"], run.evaluation["queries"]
    path = run.path / "eval" / f"{name}.parquet"
    try:
        table = pyarrow.parquet.read_table(path)
        needed = (*_KEY, "visible_items", "context", "log_probability", "rank")
        absent = [name for name in needed if name not in table.column_names]
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:80]
        raise UserError(f"{path}: damaged ({reason}); evaluate the run again") from None
    if absent:
        raise UserError(f"{path}: lacks the column {absent[0]!r}; evaluate the run again")
    if len(table) != count:
        raise UserError(
            f"{path}: {len(table)} rows where {name}.json says {count} queries; evaluate the "
            "run again"
        )
    return table


def _strings(table: pyarrow.Table, name: str) -> np.ndarray:
    return table[name].to_numpy().astype(str)


def _metric_values(table: pyarrow.Table, prefix: str) -> MetricValues:
    values = ranking.metric_values(
        table[f"{prefix}log_probability"].to_numpy(), table[f"{prefix}rank"].to_numpy()
    )
    return {name: values[name] for name in REPORTED_METRICS}
