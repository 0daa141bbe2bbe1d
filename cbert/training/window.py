"""What the loop keeps for each seed: its files, and its metrics until they are written."""

import dataclasses
import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from cbert.errors import UserError
from cbert.training.checkpoint import Checkpoints
from cbert.training.run import Run
from cbert.training.state import Progress
from cbert.training.writer import Writer


@dataclasses.dataclass
class Part:
    """One seed of a run: what it has of its own."""

    name: str
    workdir: pathlib.Path
    known: Progress
    checkpoints: Checkpoints
    writer: Writer


class Window:
    """Metrics summed since the last row; they wait on the device until they are needed."""

    def __init__(self, run: Run, parts: Sequence[Part], step: int) -> None:
        self._run, self._parts, self._step = run, parts, step
        self._pending: list[dict[str, jax.Array]] = []

    def add(self, found: dict[str, jax.Array], steps: int) -> None:
        self._pending.append({**found, "steps": np.ones((steps, len(self._parts)))})

    def save(self) -> None:
        """Moves the sums into each seed's progress, where a checkpoint takes them along."""
        for found in jax.device_get(self._pending):
            steps = len(found["steps"])
            columns = {name: value.reshape(steps, -1) for name, value in found.items()}
            for place in range(steps):  # In order, whatever a dispatch holds.
                self._step += 1
                for seed, part in enumerate(self._parts):
                    row = {name: float(value[place, seed]) for name, value in columns.items()}
                    self._add(seed, part, row)
        self._pending = []

    def _add(self, seed: int, part: Part, row: dict[str, float]) -> None:
        if not np.isfinite(list(row.values())).all():
            rows, _ = self._run.batches[seed](self._step - 1)
            ids = ", ".join(str(self._run.ids[row]) for row in rows[:3])
            raise UserError(f"{not_finite(part, self._step, row)}; its batch begins {ids}")
        for name, value in row.items():
            part.known.sums[name] = part.known.sums.get(name, 0.0) + value

    def close(self) -> list[dict[str, float]]:
        """The means of every seed, and an empty window."""
        self.save()
        return [self._means(part.known) for part in self._parts]

    def _means(self, known: Progress) -> dict[str, float]:
        sums, known.sums = known.sums, {}
        row = {
            "loss": sums["loss"] / max(sums["questions"], 1.0),
            "gradient_norm": sums["gradient_norm"] / sums["steps"],
        }
        return {**row, "skipped": sums["skipped"]} if "skipped" in sums else row


def not_finite(part: Part, step: int, row: dict[str, float]) -> str:
    kept = (part.checkpoints.steps() or ["none"])[-1]
    numbers = ", ".join(f"{name} {value:g}" for name, value in row.items() if name != "steps")
    return (
        f"{part.workdir}: a number is not finite at step {step} ({numbers}); the last "
        f"checkpoint is of step {kept}; lower --config.optimizer.learning_rate, or skip such "
        "steps by --config.train.on_nonfinite=skip in a fresh --workdir"
    )
