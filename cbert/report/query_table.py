"""What the runs were asked and what they answered, out of `eval/<split>.parquet`.

Legend: Q questions, M examples.
"""

import dataclasses

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert.errors import UserError
from cbert.evaluation import metrics
from cbert.evaluation.evaluate import GIVEN_CONTEXT, OPTIMUM, POPULARITY
from cbert.report.run_directory import Run

METRICS = ("cross_entropy", "recall@1", "recall@5", "recall@250")
CONTROLS = (POPULARITY, GIVEN_CONTEXT, OPTIMUM)
_KEY = ("id", "group", "place", "item")
Values = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Asked:
    """The questions, the same for all runs, and the controls' metrics.

    Attributes:
      run: The run that they were read from.
      key: What tells questions apart, `[Q]` rows.
      groups: `int [Q]`, equal where the group is.
      examples: `int [Q]`, a place in `contexts`.
      contexts: `[M]`, an example's context as JSON text.
      visible: `int [Q]`, how many items the model saw.
      controls: Control to metric to `float64 [Q]`.
    """

    run: Run
    key: pyarrow.Table
    groups: np.ndarray
    examples: np.ndarray
    contexts: list[str]
    visible: np.ndarray
    controls: dict[str, Values]

    def __len__(self) -> int:
        return len(self.groups)


def read_asked(run: Run) -> Asked:
    """The questions out of one run's table; raises `UserError` when it is damaged."""
    table = _read(run)
    _, first, examples = np.unique(
        _strings(table, "id"), return_index=True, return_inverse=True
    )
    contexts = table["context"].take(pyarrow.array(first)).to_pylist()
    return Asked(
        run,
        table.select(_KEY),
        metrics.group_codes(_strings(table, "group")),
        examples,
        contexts,
        table["visible_items"].to_numpy(),
        {
            name: _values(table, name.replace(" ", "_") + "_")
            for name in CONTROLS
            if name.replace(" ", "_") + "_rank" in table.column_names
        },
    )


def read_values(run: Run, asked: Asked) -> Values:
    """The metrics of each question, `float64 [Q]`; raises `UserError` for other questions."""
    table = _read(run)
    if not table.select(_KEY).equals(asked.key):
        raise UserError(
            f"{asked.run.path} and {run.path} were not asked the same questions; evaluate "
            "both on the same prepared data"
        )
    return _values(table, "")


def _read(run: Run) -> pyarrow.Table:
    name = run.evaluation["split"]
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
    if len(table) != run.evaluation["questions"]:
        raise UserError(
            f"{path}: {len(table)} rows where {name}.json says "
            f"{run.evaluation['questions']} questions; evaluate the run again"
        )
    return table


def _strings(table: pyarrow.Table, name: str) -> np.ndarray:
    return table[name].to_numpy().astype(str)


def _values(table: pyarrow.Table, prefix: str) -> Values:
    found = metrics.per_question(
        table[f"{prefix}log_probability"].to_numpy(), table[f"{prefix}rank"].to_numpy()
    )
    return {name: found[name] for name in METRICS}
