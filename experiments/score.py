"""Checks and scores anybody's predictions for a task of the leaderboard, one table a seed.

    python -m experiments.score --task=sgd_acts --table=seed0.parquet,seed1.parquet --entry=mine

docs/leaderboard.md says how the data are prepared and what a table holds.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from cbert.data import prepared
from cbert.errors import UserError, printable, warn
from cbert.evaluation import breakdown, compare, leaderboard
from cbert.evaluation.intervals import Estimate
from cbert.report.query_table import reported
from cbert.report.statistics import LEAST_SEEDS
from cbert.report.tables import markdown_text
from cbert.tasks.base import Metric
from experiments import command

_TASK = flags.DEFINE_enum("task", None, [*leaderboard.BENCHMARKS], "The task.", required=True)
_TABLE = flags.DEFINE_list(
    "table", None, "Tables of predictions, .parquet or .csv, one a seed.", required=True
)
_ENTRY = flags.DEFINE_string("entry", "", "The row's name; by default the first table's.")
_DATA_DIR = flags.DEFINE_string("data_dir", "data", "The directory of prepared data sets.")
_NAME = flags.DEFINE_string(
    "name", "", "The name of the prepared data set; by default the task's own."
)
_BY = flags.DEFINE_string("by", "", "A context feature to slice by; by default the task's own.")


def main() -> None:
    """Prints the metrics of each table, of slices, and the row for the leaderboard."""
    benchmark = leaderboard.BENCHMARKS[_TASK.value]
    name = _NAME.value or benchmark.data or _TASK.value
    paths = [pathlib.Path(path).expanduser() for path in _TABLE.value]
    if not paths:
        raise UserError("--table is empty; give a .parquet or .csv file")
    feature = prepared.load_schema(_DATA_DIR.value, name).feature(_BY.value or benchmark.by)
    breakdown.check(feature)
    asked = leaderboard.ask(benchmark, _DATA_DIR.value, name)
    scored = leaderboard.score(asked, paths)
    own = leaderboard.fingerprint(asked)
    queries, metrics = asked.queries, asked.task.metrics
    print(
        f"\ntest split of {printable(name)}: {len(queries):,} queries, "
        f"{len(set(asked.groups.tolist())):,} groups, {queries.skipped:,} skipped, fingerprint "
        f"{own}; ± standard error over groups\n"
    )
    results = {str(path): one.summarize() for path, one in zip(paths, scored, strict=True)}
    print(compare.format_results(results, metrics))
    over = "groups" if len(paths) == 1 else f"{len(paths)} seeds and groups"
    print(f"\nwhere the context decides; ± over {over}\n")
    parts = {
        label: {
            "queries": int(inside.sum()),
            **_summaries(leaderboard.estimates(scored, inside)),
        }
        for label, inside in leaderboard.slices(asked, feature).items()
    }
    print(compare.format_slices(parts, feature.name, metrics))
    print(f"\nthe row for docs/leaderboard.md; ± over {over}\n")
    entry = _ENTRY.value or paths[0].stem
    print(_row(entry, over, reported(asked.task), leaderboard.estimates(scored)))
    if len(paths) < LEAST_SEEDS:
        warn(f"a rank needs {LEAST_SEEDS} seeds, and the tables are {len(paths)}")
    if own != benchmark.fingerprint:
        warn(
            f"the test split of the leaderboard has the fingerprint {benchmark.fingerprint}; "
            "the row is no entry, unless the data are prepared as docs/leaderboard.md says"
        )


def _summaries(estimates: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """The means and errors as an evaluation's summary has them."""
    return {
        name: {
            "mean": float(one.mean),
            "standard_error": float(one.error) if np.isfinite(one.error) else None,
        }
        for name, one in estimates.items()
    }


def _row(
    entry: str, over: str, metrics: Sequence[Metric], estimates: dict[str, Estimate]
) -> str:
    """The Markdown row below its head; the first metric has its 95 % interval."""
    head = [metric.title for metric in metrics]
    summaries = _summaries(estimates)
    cells = [compare.cell(metric, summaries) for metric in metrics]
    low, high = estimates[metrics[0].name].interval()
    digits = metrics[0].digits
    head.insert(1, "95 % interval")
    cells.insert(1, f"{low:.{digits}f} to {high:.{digits}f}")
    rows = [["", "± over", *head], ["---", "---", *["---:"] * len(head)]]
    rows.append([markdown_text(entry), over, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    command.run(main)
