"""Metrics as text (`metrics.jsonl`) and as TensorBoard events."""

import contextlib
import json
import pathlib
import time
from typing import Any

from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog

from cbert import files


class _Events:
    """TensorBoard events, written in the caller's thread.

    `SummaryWriter` has a thread of its own: once a full disk ends it, the next rows wait for
    ever.
    """

    def __init__(self, workdir: pathlib.Path, step: int) -> None:
        self._writer = EventsWriter(str(workdir / "events"), filename_suffix=f".{step}")
        # What an earlier process wrote of later steps is hidden.
        start = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(wall_time=time.time(), step=step + 1, session_log=start))

    def add(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            found = summary.scalar(name, value)
            self._writer.write_event(Event(wall_time=time.time(), step=step, summary=found))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Writer:
    """Appends rows; what lies after the step it starts from is dropped first. A context.

    A silent one writes nothing: where several processes train together, all but the first.
    """

    def __init__(self, workdir: pathlib.Path, step: int, silent: bool = False) -> None:
        self._silent = silent
        if silent:
            return
        self._path = workdir / "metrics.jsonl"
        rows = [row for row in read(self._path) if row["step"] <= step]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        files.write_text(self._path, text)
        self._file = self._path.open("a", encoding="utf-8")
        self._events = _Events(workdir, step)

    def write(self, step: int, split: str, values: dict[str, float], **rates: float) -> None:
        """Writes one row; `rates` depend on the machine and go to TensorBoard alone."""
        if self._silent:
            return
        row: dict[str, Any] = {"step": step, "split": split, **values}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        scalars = {**values, **rates}
        self._events.add(step, {f"{split}/{name}": scalars[name] for name in scalars})
        if not rates:  # Seldom: it waits for the disk.
            self._events.flush()

    def flush(self) -> None:
        """Called before a checkpoint: what goes on from it finds every event before it."""
        if not self._silent:
            self._events.flush()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        if self._silent:
            return
        try:
            self._file.close()
        finally:
            self._events.close()


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.jsonl`; a torn or damaged line is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows
