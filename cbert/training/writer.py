"""Metrics as text (`metrics.jsonl`) and as TensorBoard events."""

import json
import pathlib
from typing import Any

from tensorboardX import SummaryWriter


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
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self._path)
        self._file = self._path.open("a", encoding="utf-8")
        self._events = SummaryWriter(str(workdir), purge_step=step + 1 if step else None)

    def write(self, step: int, split: str, values: dict[str, float], **rates: float) -> None:
        """Writes one row; `rates` depend on the machine and go to TensorBoard alone."""
        if self._silent:
            return
        row: dict[str, Any] = {"step": step, "split": split, **values}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        for name, value in {**values, **rates}.items():
            self._events.add_scalar(f"{split}/{name}", value, step)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._silent:
            self._file.close()
            self._events.close()


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """The rows of a `metrics.jsonl`; a torn last line is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows
