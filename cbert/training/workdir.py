"""The directory of a run: which run it belongs to, and whether the run is finished."""

import json
import pathlib
import re
import shutil
from typing import Any

import ml_collections

from cbert import directories, files
from cbert.errors import UserError, warn
from cbert.schema import Schema, schema_file
from cbert.training import config as config_lib
from cbert.training.state import Progress

# What the directory holds.
CONFIG = config_lib.FILE
SCHEMA = schema_file.FILE
DATA = "data.json"  # The sizes of the data as the run began, see `own_data`.
METRICS = "metrics.jsonl"
DIVERGED = "diverged"  # The split of a row of the metrics that marks a step, and has no more.
LOG = "log.txt"  # What a run of a sweep prints.
FINISHED = "finished.json"
CHECKPOINTS = "checkpoints"
EVALUATIONS = "eval"
EXPLANATIONS = "explain"
UNUSABLE = ".unusable"  # The suffix of a damaged checkpoint that was set aside.
# Orbax takes `[1]` in the path of a checkpoint for a pattern, and loses the parameters, and
# TensorStore takes a backslash for a slash.
_MISREAD = re.compile(r"[\[\\]")


def read(workdir: pathlib.Path) -> tuple[ml_collections.ConfigDict, Schema]:
    """A run's config and the schema of its data.

    Raises:
      UserError: the directory is not a run's, or one of the two files is damaged.
    """
    config = config_lib.load(workdir)
    if not (workdir / SCHEMA).exists():
        raise UserError(
            f"{workdir} has lost its {SCHEMA}; copy that of the data {config.data.name!r}"
        )
    return config, schema_file.load(workdir / SCHEMA)


def check(
    config: ml_collections.ConfigDict, schema: Schema | None, workdir: pathlib.Path
) -> None:
    """Checks that a run may use a directory.

    Raises:
      UserError: the directory belongs to another config or schema, or to something else, or
        its path has a letter with which no checkpoint can be saved.
    """
    if found := _MISREAD.search(workdir.absolute().as_posix()):
        raise UserError(
            f"{workdir} has {found[0]!r} in its path, so that its checkpoints could not be "
            "read again; use another work directory"
        )
    if (workdir / CONFIG).exists():
        own_config, own_schema = read(workdir)
        differences = config_lib.differences(own_config, config)
        if differences:
            raise UserError(
                f"{workdir} belongs to another config: {'; '.join(differences)}; use another "
                "work directory, whose train.init_from may be this one"
            )
        if schema and own_schema != schema:
            raise UserError(
                f"{workdir} was trained on data of another schema; use another work directory"
            )
    elif workdir.exists() and not _is_free(workdir):
        raise UserError(
            f"{workdir} exists and is not a run's directory; use another work directory"
        )


def _is_free(workdir: pathlib.Path) -> bool:
    """Returns whether a directory holds only files that precede a run's `config.json`."""
    written_first = {SCHEMA, DATA, directories.LOCK, LOG}
    return workdir.is_dir() and all(
        path.name in written_first or path.suffix == ".tmp" for path in workdir.iterdir()
    )


def initialise_workdir(
    config: ml_collections.ConfigDict, schema: Schema, workdir: pathlib.Path
) -> None:
    """Writes a new run's schema and config, and removes temporary files of killed processes.

    The caller holds the directory's lock. `config.json` marks the directory as a run's; where
    the data of an earlier run have moved, it says from now on where they are.

    Raises:
      UserError: as `check`; another process may have trained there before it had the lock.
    """
    check(config, schema, workdir)
    files.remove_left_by_kills(workdir.rglob("*.tmp"))
    if not (workdir / CONFIG).exists():
        schema_file.save(schema, workdir / SCHEMA)
        config_lib.save(config, workdir)
    elif config_lib.load(workdir).data.dir != config.data.dir:
        _note_moved_data(config.data.dir, workdir / CONFIG)


def _note_moved_data(data_dir: str, path: pathlib.Path) -> None:
    """Writes where the data are into a run's config, all else of which stays as it is."""
    written = json.loads(files.read_text(path))
    written["data"]["dir"] = data_dir
    files.write_text(path, json.dumps(written, indent=1, sort_keys=True) + "\n")


def checkpoint_steps(checkpoints: pathlib.Path) -> list[int]:
    """The steps whose checkpoints are in the directory, whether damaged or not."""
    if not checkpoints.is_dir():
        return []
    # What a killed process had not saved whole has a suffix.
    names = (path.name for path in checkpoints.iterdir() if path.is_dir())
    return sorted(int(name) for name in names if re.fullmatch("[1-9][0-9]*", name))


def has_checkpoints(workdir: pathlib.Path) -> bool:
    """Whether a run's directory holds a checkpoint, damaged or not."""
    return bool(checkpoint_steps(workdir / CHECKPOINTS))


def finish(workdir: pathlib.Path, step: int, progress: Progress) -> None:
    """Removes damaged checkpoints that were set aside, and marks a run as finished at a step.

    The mark of a run that is finished already stays as it is, with its time.
    """
    result = {"step": step, "best": progress.best, "best_step": progress.best_step}
    for path in (workdir / CHECKPOINTS).glob(f"*{UNUSABLE}"):
        shutil.rmtree(path)
    if finished(workdir) != result:
        files.write_text(workdir / FINISHED, json.dumps(result) + "\n")


def unfinish(workdir: pathlib.Path) -> None:
    """Removes the mark of a finished run, which trains again because it lost checkpoints."""
    (workdir / FINISHED).unlink(missing_ok=True)


def warn_unfinished(workdir: pathlib.Path, step: int, steps: int) -> None:
    """Warns where a checkpoint of that step is one of a run that has not come to its end."""
    if finished(workdir) is None:
        warn(
            f"{workdir}: the run is not finished; its checkpoint is of step {step:,}, and the "
            f"config has {steps:,} steps"
        )


def finished(workdir: pathlib.Path) -> dict[str, Any] | None:
    """The result that `finish` wrote, None if the run is not finished."""
    return files.read_object(workdir / FINISHED)
