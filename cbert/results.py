"""Evaluations and comparisons of runs, as DataFrames of pandas."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cbert.data.records import SPLITS
from cbert.errors import UserError, check_choice, check_kind, check_path, missing_extra
from cbert.evaluation import compare as compare_lib
from cbert.evaluation import evaluate as evaluate_lib
from cbert.evaluation import evaluation_files

if TYPE_CHECKING:
    import pandas

PathLike = str | pathlib.Path


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """The evaluation of a run, as DataFrames of pandas.

    Attributes:
      metrics: A row for the model and for each baseline, and for each metric two columns: its
        mean, and its standard error over groups as `<metric>_standard_error`; NaN where
        there is none.
      queries: A row a query: its example, group and context, what was asked, and what the model
        and the baselines predicted.
      summary: The same numbers as `eval/<split>.json`.
    """

    metrics: "pandas.DataFrame"
    queries: "pandas.DataFrame"
    summary: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self._title()}\n{self.metrics}"

    def _repr_html_(self) -> str:
        """What a notebook shows where this is the value of a cell."""
        return f"<p>{self._title()}</p>{self.metrics.to_html()}"

    def _title(self) -> str:
        return f"EvaluationResult: metrics as below, {len(self.queries):,} queries, summary"


def evaluate(
    workdir: PathLike,
    split: str = "test",
    checkpoint: str | int = "best",
    by: str | Sequence[str] = (),
    feature_importance: bool = False,
    write: bool = True,
    name: str = "",
    data_dir: str = "",
    masking: str = "",
) -> EvaluationResult:
    """Evaluates a run beside the baselines.

    Args:
      workdir: The run's directory.
      split: `train`, `validation` or `test`.
      checkpoint: `best`, `last` or a step.
      by: A feature of the context, or several, to whose values the summary then has metrics.
      feature_importance: Whether to measure the importance of each feature.
      write: Whether to write `eval/<split>.json` and `.parquet`, which reports read, and the
        tables of labels.
      name: Another prepared data set; by default the run's.
      data_dir: Where the data lie now; by default where the run found them.
      masking: `each` item of an example in turn, `one`, or the `last` of a sequence; by default
        as the run's config says.

    Raises:
      UserError: the run, its data or the checkpoint are not what they must be, or pandas is
        missing.
    """
    pandas = _pandas("cbert.evaluate")
    check_path("workdir", workdir)
    check_kind("by", by, str | list | tuple, "the name of a feature, or a list of names")
    features = (by,) if isinstance(by, str) and by else tuple(by)
    options = _options(split, checkpoint, name, data_dir, masking, features, feature_importance)
    evaluation = evaluate_lib.evaluate(workdir, options)
    summary = evaluation_files.summary(evaluation, features)
    if write:
        evaluation_files.write(evaluation, summary, workdir)
    rows = {
        name: {
            f"{metric}{suffix}": numbers[statistic]
            for metric, numbers in metrics.items()
            for suffix, statistic in (("", "mean"), ("_standard_error", "standard_error"))
        }
        for name, metrics in summary["results"].items()
    }
    means = pandas.DataFrame.from_dict(rows, orient="index", dtype=float)
    table = pandas.DataFrame(evaluation_files.columns(evaluation))
    return EvaluationResult(means, table, summary)


def compare(
    workdirs: Sequence[PathLike],
    split: str = "test",
    checkpoint: str | int = "best",
    name: str = "",
    data_dir: str = "",
    masking: str = "",
) -> "pandas.DataFrame":
    """Evaluates runs on the same queries, and compares each with the first one.

    Args:
      workdirs: The directories of at least two runs.
      split: The split that all runs are evaluated on; this and the following arguments are
        those of `evaluate`.
      checkpoint: Which checkpoint of each run is taken.
      name: Another prepared data set for all runs; by default each has its own.
      data_dir: Where the data lie now; by default where each run found them.
      masking: What is asked about each example; by default as each run's config says.

    Returns:
      A row for each run: each metric of the task under its name; and of the first metric the
      `difference` from that of the first run, the difference's `standard_error`, and its 95 %
      interval from `low` to `high`. These are over groups and say nothing about another seed.
      In the first row there is no difference: NaN.

    Raises:
      UserError: see `evaluate`; or the runs are of different tasks or queries.
    """
    pandas = _pandas("cbert.compare")
    check_kind("workdirs", workdirs, list | tuple, "a list of work directories")
    for workdir in workdirs:
        check_path("workdirs", workdir)
    if len({*map(str, workdirs)}) < max(len(workdirs), 2):
        raise UserError(f"workdirs is {workdirs!r}; give at least two, each once")
    options = _options(split, checkpoint, name, data_dir, masking)
    compare_lib.check_comparable([*map(str, workdirs)])
    evaluations = [evaluate_lib.evaluate(workdir, options) for workdir in workdirs]
    rows: list[dict[str, Any]] = [
        {metric: measured["mean"] for metric, measured in one.summarize().items()}
        for one in evaluations
    ]
    for row, other in zip(rows[1:], evaluations[1:], strict=True):
        difference = compare_lib.paired(evaluations[0], other)
        row |= {"difference": difference.pop("mean"), **difference}
    return pandas.DataFrame(rows, index=[*map(str, workdirs)], dtype=float)


def _pandas(what: str) -> Any:
    """The module, which one extra of the package brings."""
    try:
        import pandas
    except ImportError as error:
        raise missing_extra(what, "report", error) from None
    return pandas


def _options(
    split: str,
    checkpoint: str | int,
    name: str,
    data_dir: str,
    masking: str,
    by: tuple[str, ...] = (),
    feature_importance: bool = False,
) -> evaluate_lib.EvaluationOptions:
    """The options of an evaluation, of the kinds that they must be."""
    check_choice("split", split, SPLITS)
    check_kind("name", name, str | None, "a string")
    check_path("data_dir", data_dir or "")
    return evaluate_lib.EvaluationOptions(
        split, str(checkpoint), data_dir, name, masking, by, feature_importance
    )
