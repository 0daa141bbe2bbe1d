"""A run's directory: whose it is, who is at work in it, and whether the run is finished."""

import json
import os
import pathlib
import socket
import types
from typing import Any

import ml_collections

from cbert import config as config_lib
from cbert import files, schema_file
from cbert.errors import UserError
from cbert.schema import Schema

try:
    import fcntl
except ImportError:  # Not on Windows; runs are not locked there.
    fcntl = None

LOCK, FINISHED = "lock", "finished.json"


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
    begun = {"schema.json", "schema.json.tmp", "config.json.tmp", LOCK, "log.txt"}
    return workdir.is_dir() and all(path.name in begun for path in workdir.iterdir())


def claim(config: ml_collections.ConfigDict, schema: Schema, workdir: pathlib.Path) -> None:
    """Fills the work directory; `config.json` comes last and marks it as a run's."""
    if not (workdir / "config.json").exists():
        schema_file.save(schema, workdir / "schema.json")
        files.replace(workdir / "config.json", lambda path: config_lib.save(config, path))


class Lock:
    """Held while a process trains in a directory; the system releases it when that ends."""

    def __init__(self, workdir: pathlib.Path) -> None:
        self._workdir = workdir

    def __enter__(self) -> "Lock":
        self._workdir.mkdir(parents=True, exist_ok=True)
        self._file = (self._workdir / LOCK).open("a+", encoding="utf-8")
        try:
            if fcntl:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read().strip() or "another process"
            self._file.close()
            raise UserError(
                f"{self._workdir} is in use by {owner}; wait for it or use another --workdir"
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._file.close()


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
