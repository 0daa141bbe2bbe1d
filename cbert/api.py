"""The public interface: what a Python program imports from `cbert` itself.

Everything else in the package is private, and may change in any version.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import ml_collections

from cbert import config as config_fields
from cbert.data import in_python
from cbert.data import prepare as prepare_lib
from cbert.data.prepare import Options
from cbert.data.records import SPLITS
from cbert.errors import check_choice, check_kind, check_path, missing_extra
from cbert.evaluation import evaluate as evaluate_lib
from cbert.evaluation import evaluation_files
from cbert.training import config as config_lib
from cbert.training import config_file, loop, suggest
from cbert.training import workdir as workdir_lib
from cbert.training.callbacks import Callbacks
from cbert.training.config_sections import sections

if TYPE_CHECKING:
    import pandas

PathLike = str | pathlib.Path


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """A data set that was prepared.

    Attributes:
      directory: Where it lies.
      config: A config file that suits it, to start from; or the one that was there, if it was
        edited.
      summary: Numbers of examples, items, features and more.
    """

    directory: pathlib.Path
    config: pathlib.Path
    summary: Mapping[str, Any]


def prepare(
    records: "Iterable[Mapping[str, Any]] | pandas.DataFrame",
    name: str,
    data_dir: PathLike = "data",
    options: Options | None = None,
) -> PreparedData:
    """Validates records, splits them by group, infers their schema and writes a data set.

    Args:
      records: Mappings with the fields of a record, or a DataFrame with a column for each; its
        further columns are features of the context. They are iterated over once.
      name: The data set's name.
      data_dir: Where prepared data sets lie.
      options: What may be decided, such as the kind and the least counts.

    Raises:
      UserError: the records do not make a data set; nothing is written.
    """
    options = Options() if options is None else options
    check_kind("name", name, str, "a string")
    check_path("data_dir", data_dir)
    check_kind("options", options, Options, "PrepareOptions")
    read = in_python.read(records, options.kind, options.kinds, options.drop)
    directory, summary = prepare_lib.prepare(read, data_dir, name, options)
    config, _, _ = suggest.write(data_dir, name, summary)
    return PreparedData(directory, config, summary)


def read_config(
    source: PathLike, overrides: Mapping[str, Any] | None = None
) -> ml_collections.ConfigDict:
    """The config of a file or of a run, with some fields set.

    Args:
      source: A config file, which may be followed by a colon and an argument, such as
        `configs/base.py:gs`; or a run's work directory.
      overrides: Dotted name of a field to its value, or nested mappings.

    Raises:
      UserError: there is no such file or field, or a value is impossible.
    """
    check_path("source", source)
    config = config_file.read(source)
    config_file.override(config, {} if overrides is None else overrides)
    config_fields.check(config, sections())
    return config


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """How a call of `train` ended.

    Attributes:
      workdir: The run's directory.
      finished: Whether the run came to its end; else the same call goes on.
      best: The best value of the task's first metric on the validation split.
      best_step: The step that it was measured at, 0 for none.
    """

    workdir: pathlib.Path
    finished: bool
    best: float
    best_step: int


def train(
    config: ml_collections.ConfigDict, workdir: PathLike, callbacks: Callbacks | None = None
) -> TrainingResult:
    """Trains, or goes on training, in a work directory.

    Raises:
      UserError: the config, the data or the work directory are not what they must be.
    """
    config_lib.check(config)
    check_path("workdir", workdir)
    check_kind("callbacks", callbacks, Callbacks | None, "Callbacks(step=...)")
    progress = loop.train(config, workdir, callbacks)
    path = pathlib.Path(workdir).expanduser()
    done = workdir_lib.finished(path) is not None
    return TrainingResult(path, done, progress.best, progress.best_step)


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """The evaluation of a run, as DataFrames of pandas.

    Attributes:
      metrics: A row for the model and for each baseline, and for each metric two columns: its
        mean, and its standard error over groups as `<metric>_standard_error`.
      queries: A row a query: its example, group and context, what was asked, and what the model
        and the baselines predicted.
      summary: The same numbers as `eval/<split>.json`.
    """

    metrics: "pandas.DataFrame"
    queries: "pandas.DataFrame"
    summary: Mapping[str, Any]


def evaluate(
    workdir: PathLike,
    split: str = "test",
    checkpoint: str | int = "best",
    by: str = "",
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
      by: A feature of the context, to whose values the summary then has metrics.
      feature_importance: Whether to measure the importance of each feature.
      write: Whether to write `eval/<split>.json` and `.parquet`, which reports read, and the
        tables of labels.
      name: Another prepared data set; by default the run's.
      data_dir: Where the data lie now; by default where the run found them.
      masking: `each` item of an example in turn, or `one`; by default as the run's config says.

    Raises:
      UserError: the run, its data or the checkpoint are not what they must be, or pandas is
        missing.
    """
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("cbert.evaluate", "report", error) from None
    check_path("workdir", workdir)
    check_choice("split", split, SPLITS)
    check_kind("name", name, str | None, "a string")
    check_path("data_dir", data_dir or "")
    options = evaluate_lib.EvaluationOptions(
        split, str(checkpoint), data_dir, name, masking, by, feature_importance
    )
    evaluation = evaluate_lib.evaluate(workdir, options)
    summary = evaluation_files.summary(evaluation, by)
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
    table = pandas.DataFrame(evaluation_files.columns(evaluation))
    return EvaluationResult(pandas.DataFrame.from_dict(rows, orient="index"), table, summary)
