"""Checks and scores anybody's predictions for a task of the leaderboard, one table a seed.

    python -m experiments.score --task=sgd_acts --queries=sgd_acts.parquet
    python -m experiments.score --task=sgd_acts --table=seed0.parquet,seed1.parquet --entry=mine

docs/leaderboard.md says how the data are prepared and what a table holds.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
import pyarrow.parquet
from absl import flags

from cbert import files
from cbert.data import prepared
from cbert.errors import UserError, printable, warn
from cbert.evaluation import breakdown, compare, leaderboard
from cbert.evaluation.evaluation import Evaluation
from cbert.evaluation.intervals import Estimate, Summary
from cbert.report.query_table import reported
from cbert.report.statistics import LEAST_SEEDS
from cbert.report.tables import markdown_text
from cbert.schema import Feature
from cbert.tasks.metric import Metric
from experiments import command

_TASK = flags.DEFINE_enum("task", None, [*leaderboard.BENCHMARKS], "The task.", required=True)
_TABLE = flags.DEFINE_list("table", [], "Tables of predictions, .parquet or .csv, one a seed.")
_QUERIES = flags.DEFINE_string(
    "queries", "", "A .parquet file to write the queries of the test split to."
)
_ENTRY = flags.DEFINE_string("entry", "", "The row's name; by default the first table's.")
_DATA_DIR = flags.DEFINE_string("data_dir", "data", "The directory of prepared data sets.")
_NAME = flags.DEFINE_string(
    "name", "", "The name of the prepared data set; by default the task's own."
)
_BY = flags.DEFINE_string("by", "", "A context feature to slice by; by default the task's own.")


def main() -> None:
    """Writes the queries, or prints the metrics of the tables and their row."""
    benchmark = leaderboard.BENCHMARKS[_TASK.value]
    name = _NAME.value or benchmark.data or _TASK.value
    paths = [pathlib.Path(path).expanduser() for path in _TABLE.value]
    if not paths and not _QUERIES.value:
        raise UserError("give --table=FILE to score it, or --queries=FILE to write the queries")
    if not paths:
        command.refuse((_ENTRY, _BY), "the scores of a table; give --table=FILE with it")
    feature = prepared.load_schema(_DATA_DIR.value, name).feature(_BY.value or benchmark.by)
    breakdown.check(feature)
    asked = leaderboard.ask(benchmark, _DATA_DIR.value, name)
    scored = leaderboard.score(asked, paths)
    own = leaderboard.fingerprint(asked)
    print(
        f"\ntest split of {printable(name)}: {len(asked.queries):,} queries, "
        f"{len(set(asked.groups.tolist())):,} groups, {asked.queries.skipped:,} skipped, "
        f"fingerprint {own}"
    )
    if _QUERIES.value:
        table = leaderboard.queries(asked)
        target = pathlib.Path(_QUERIES.value).expanduser()
        files.replace(target, lambda path: pyarrow.parquet.write_table(table, path))
    if scored:
        _print_scores(paths, scored, feature)
    if own != benchmark.fingerprint:
        warn(
            f"the test split of the leaderboard has the fingerprint {benchmark.fingerprint}; "
            "prepare the data as docs/leaderboard.md says"
        )


def _print_scores(
    paths: Sequence[pathlib.Path], scored: Sequence[Evaluation], feature: Feature
) -> None:
    """Prints a table of the seeds, one of slices, and the row of the leaderboard."""
    task = scored[0].task
    results = {str(path): one.summarize() for path, one in zip(paths, scored, strict=True)}
    print(f"± standard error over groups\n\n{compare.format_results(results, task.in_tables)}")
    over = "groups" if len(scored) == 1 else f"{len(scored)} seeds and groups"
    parts = {
        label: {
            "queries": int(inside.sum()),
            **_summaries(leaderboard.estimates(scored, inside)),
        }
        for label, inside in leaderboard.slices(scored[0], feature).items()
    }
    print(f"\nwhere the context decides; ± over {over}\n")
    print(compare.format_slices(parts, feature.name, task.in_tables))
    entry = _ENTRY.value or paths[0].stem
    print("\nthe row for docs/leaderboard.md\n")
    print(_row(entry, over, reported(task), leaderboard.estimates(scored)))
    if len(scored) < LEAST_SEEDS:
        warn(f"a rank needs {LEAST_SEEDS} seeds, and the tables are {len(scored)}")


def _summaries(estimates: dict[str, Estimate]) -> dict[str, Summary]:
    """The means and errors as an evaluation's summary has them."""
    return {name: one.summary() for name, one in estimates.items()}


def _row(
    entry: str, over: str, metrics: Sequence[Metric], estimates: dict[str, Estimate]
) -> str:
    """The Markdown row below its head; the first metric has its 95 % interval."""
    head = [metric.title for metric in metrics]
    summaries = _summaries(estimates)
    cells = [compare.cell(metric, summaries) for metric in metrics]
    low, high = estimates[metrics[0].name].interval()
    scale, digits = metrics[0].scale, metrics[0].digits
    head.insert(1, "95 % interval")
    ends = f"{scale * low:.{digits}f} to {scale * high:.{digits}f}"
    cells.insert(1, ends if np.isfinite(high) else "")
    rows = [["", "± over", *head], ["---", "---", *["---:"] * len(head)]]
    rows.append([markdown_text(entry), over, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    command.run(main)
