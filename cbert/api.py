"""The public interface: what a Python program imports from `cbert` itself.

Everything else in the package is private, and may change in any version.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_collections

from cbert import config as config_fields
from cbert.data import in_python, tables
from cbert.data import prepare as prepare_lib
from cbert.data.prepare_options import PrepareOptions, TextOptions, beside_schema
from cbert.data.records import TRAIN
from cbert.data.row_errors import BadRows
from cbert.errors import ADVICE, UserError, check_kind, check_path
from cbert.schema import schema_file
from cbert.schema.values import check_size
from cbert.training import config as config_lib
from cbert.training import config_file, loop, suggest
from cbert.training import workdir as workdir_lib
from cbert.training.callbacks import Callbacks
from cbert.training.config_sections import sections
from cbert.training.preemption import Stop

if TYPE_CHECKING:
    import pandas

PathLike = str | pathlib.Path
# What the refusal of a method or a task that is not known adds in a program.
_OWN = "commands alone read CBERT_METHODS, so import the file of one that is yours"


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """A data set that was prepared.

    Attributes:
      directory: Where it lies.
      config: A config file that suits it, to start from; or the one that was there, if it was
        edited; None where no example is for training.
      summary: Numbers of examples, items, features and more.
      skipped: For each record that was left out, its number and what was wrong.
    """

    directory: pathlib.Path
    config: pathlib.Path | None
    summary: Mapping[str, Any]
    skipped: Sequence[str] = ()


def prepare(
    records: "Iterable[Mapping[str, Any]] | pandas.DataFrame",
    name: str,
    data_dir: PathLike = "data",
    options: PrepareOptions | None = None,
    schema: PathLike | None = None,
    skip_bad_rows: int = 0,
) -> PreparedData:
    """Validates records, splits them by group, infers their schema and writes a data set.

    Args:
      records: Mappings with the fields of a record, or a DataFrame with a column for each; its
        further columns are features of the context. They are iterated over once.
      name: The data set's name.
      data_dir: Where prepared data sets lie.
      options: What may be decided, such as the kind and the least counts.
      schema: A `schema.json`, or a run's work directory, to use in place of an inferred schema;
        no option may be given that it decides.
      skip_bad_rows: How many records that are not valid may be left out.

    Raises:
      UserError: the records do not make a data set; nothing is written.
    """
    options = PrepareOptions() if options is None else options
    check_kind("name", name, str, "a string")
    check_path("data_dir", data_dir)
    check_kind("options", options, PrepareOptions, "PrepareOptions")
    check_size("skip_bad_rows", skip_bad_rows, least=0)
    given = None
    if schema is not None:
        check_path("schema", schema)
        given = schema_file.load(schema)
        options = beside_schema(options, given)
    options.check(needs_training=given is None)  # Before its parts are read.
    bad_rows = BadRows(None, skip_bad_rows)
    try:
        read = in_python.read(
            records,
            options.kind,
            options.kinds,
            options.drop,
            target=given.target.kind if given and given.target else options.text.target,
            repeats=options.repeats,
            of_schema=tables.kinds_of(given) if given else {},
            bad_rows=bad_rows,
            features=given.features if given else (),
        )
        directory, summary = prepare_lib.prepare(read, data_dir, name, options, given)
    except UserError as error:
        raise UserError(f"{error}{_where_given(str(error))}") from None
    config = None
    if TRAIN in summary["examples"]:
        config, _, _ = suggest.write(data_dir, name, summary)
    return PreparedData(directory, config, summary, tuple(bad_rows.messages))


def _where_given(message: str) -> str:
    """Says where an option belongs that a message advises to give, as `name=value`."""
    for _, name in re.findall(ADVICE, message):
        if name in PrepareOptions.__dataclass_fields__:
            return f"; {name} is of options=cbert.PrepareOptions({name}=...)"
        if name in TextOptions.__dataclass_fields__:
            return f"; {name} is of PrepareOptions(text=cbert.TextOptions({name}=...))"
    return ""


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
    try:
        config = config_file.read(source)
        config_file.override(config, {} if overrides is None else overrides)
        config_fields.check(config, sections())
    except config_fields.ImpossibleValueError as error:
        if error.may_be_own:
            raise UserError(f"{error}; {_OWN}") from None
        raise
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

    Args:
      config: As `read_config` gives it.
      workdir: The run's directory. Where an earlier call with the same config was cut off, this
        one goes on; where the run is finished, nothing is done.
      callbacks: Functions that are called on the way, one of which may end the run.

    Raises:
      UserError: the config, the data or the work directory are not what they must be.
      KeyboardInterrupt: Ctrl-C or a notebook's stop button; the run was saved before.
    """
    config_lib.check(config)
    check_path("workdir", workdir)
    check_kind("callbacks", callbacks, Callbacks | None, "Callbacks(step=...)")
    stop = Stop()
    progress = loop.train(config, workdir, callbacks, stop)
    path = pathlib.Path(workdir).expanduser()
    done = workdir_lib.finished(path) is not None
    if stop.interrupted:  # Or a loop of the caller's would begin its next training.
        saved = " and saved" if workdir_lib.has_checkpoints(path) else ""
        raise KeyboardInterrupt(f"{path}: stopped{saved}; the same call goes on")
    return TrainingResult(path, done, progress.best, progress.best_step)
