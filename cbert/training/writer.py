"""Writing metrics as text (`metrics.jsonl`) and as TensorBoard events."""

import contextlib
import json
import pathlib
import socket
import time
from typing import Any

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from cbert import files
from cbert.training.workdir import METRICS

_EVENTS = "events.out.tfevents"


class _Events:
    """Writes TensorBoard events in the caller's thread.

    tensorboardX's `SummaryWriter` writes in a thread of its own. If a full disk ends that
    thread, the caller waits for ever.
    """

    def __init__(self, workdir: pathlib.Path, step: int) -> None:
        name = f"{_EVENTS}.{_second(workdir):010}.{socket.gethostname()}.{step}"
        self._records = RecordWriter(str(workdir / name))
        self._write(file_version="brain.Event:2")
        # A session that starts hides the later steps that an earlier process wrote.
        self._write(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._write(step=step, summary=summary.scalar(name, value))

    def _write(self, **content: Any) -> None:
        event = Event(wall_time=time.time(), **content)
        self._records.write(event.SerializeToString())

    def flush(self) -> None:
        self._records.flush()

    def close(self) -> None:
        self.flush()
        self._records.close()


def _second(workdir: pathlib.Path) -> int:
    """The second to name a new event file after: now, but later than all files' seconds.

    TensorBoard reads the files in the order of their names. If a file sorted before an older
    one, because the clock was set back, the older one's session would hide its steps.
    """
    names = [path.name.split(".") for path in workdir.glob(f"{_EVENTS}.*")]
    seconds = [int(parts[3]) for parts in names if parts[3].isdecimal()]
    return max([int(time.time()), *(second + 1 for second in seconds)])


class Writer:
    """Appends rows of metrics to a run's files; a context manager.

    Rows after the step that the run starts from are dropped first. A silent writer writes
    nothing: of several processes that train together, all but the first have one.
    """

    def __init__(self, workdir: pathlib.Path, step: int, silent: bool = False) -> None:
        self._silent = silent
        if silent:
            return
        self._path = workdir / METRICS
        rows = [row for row in read(self._path) if row["step"] <= step]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        files.write_text(self._path, text)
        self._file = self._path.open("a", encoding="utf-8")
        self._events = _Events(workdir, step)

    def write(self, step: int, split: str, values: dict[str, float], **rates: float) -> None:
        """Writes one row. `rates` depend on the machine, and only TensorBoard gets them."""
        if self._silent:
            return
        row: dict[str, Any] = {"step": step, "split": split, **values}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        scalars = {**values, **rates}
        self._events.add(step, {f"{split}/{name}": scalars[name] for name in scalars})
        if not rates:  # Rows with rates are frequent, and a flush waits for the disk.
            self._events.flush()

    def flush(self) -> None:
        """Writes out all events; needed before a checkpoint, so that none before it is lost."""
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
    """The rows of a `metrics.jsonl`, without torn or damaged lines."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows
