"""The results of evaluations in the directory of a run."""

import pathlib
from typing import Any

from cbert import files
from cbert.training.workdir import EVALUATIONS

MODEL = "model"  # The predictor that is the run's own; all others of a result are baselines.


def path(workdir: pathlib.Path, name: str) -> pathlib.Path:
    """The file of that result; the table of its queries is a `.parquet` beside it."""
    return workdir / EVALUATIONS / f"{name}.json"


def read(workdir: pathlib.Path, name: str) -> dict[str, Any] | None:
    """The result; None where there is none that can be read, see `files.read_object`."""
    return files.read_object(path(workdir, name))
