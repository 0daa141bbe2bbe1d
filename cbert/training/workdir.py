"""A run's directory: whose it is, and whether the run is finished."""

import json
import pathlib
from typing import Any

import ml_collections

from cbert import files
from cbert.errors import UserError
from cbert.schema import Schema, schema_file
from cbert.training import config as config_lib

FINISHED = "finished.json"


def check(config: ml_collections.ConfigDict, schema: Schema, workdir: pathlib.Path) -> None:
    """Refuses a work directory of another config or schema, or of anything else."""
    if (workdir / "config.json").exists():
        found = config_lib.differences(config_lib.load(workdir), config)
        if found:
            raise UserError(
                f"{workdir} belongs to another config: {'; '.join(found)}; "
                "use another --workdir"
            )
        if schema_file.load(workdir / "schema.json") != schema:
            raise UserError(
                f"{workdir} was trained on data of another schema; use another --workdir"
            )
    elif workdir.exists() and not _is_unclaimed(workdir):
        raise UserError(f"{workdir} exists and is not a run's directory; use another --workdir")


def _is_unclaimed(workdir: pathlib.Path) -> bool:
    """Empty, or left by a run that ended before its `config.json` was written."""
    begun = {"schema.json", files.LOCK, "log.txt"}
    return workdir.is_dir() and all(
        path.name in begun or path.suffix == ".tmp" for path in workdir.iterdir()
    )


def claim(config: ml_collections.ConfigDict, schema: Schema, workdir: pathlib.Path) -> None:
    """Fills the work directory; `config.json` comes last and marks it as a run's."""
    if not (workdir / "config.json").exists():
        schema_file.save(schema, workdir / "schema.json")
        config_lib.save(config, workdir / "config.json")


def finish(workdir: pathlib.Path, found: dict[str, Any]) -> None:
    """Marks a run as finished; what is marked already is left alone."""
    if finished(workdir) == found:
        return
    files.write_text(workdir / FINISHED, json.dumps(found) + "\n")


def finished(workdir: pathlib.Path) -> dict[str, Any] | None:
    """What `finish` wrote, None where the run has not ended."""
    try:
        return json.loads((workdir / FINISHED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
