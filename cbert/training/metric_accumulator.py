"""The metrics of training until they are written."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from cbert.errors import UserError
from cbert.training.run import Run
from cbert.training.seed_run import SeedRun, note_divergence
from cbert.training.state import Progress


class MetricAccumulator:
    """Metrics summed since the last row; they wait on the device until they are needed."""

    def __init__(self, run: Run, seed_runs: Sequence[SeedRun], step: int) -> None:
        self._run, self._seed_runs, self._step = run, seed_runs, step
        self._pending: list[dict[str, Any]] = []

    def add(self, metrics: dict[str, jax.Array]) -> None:
        """Takes the metrics of a dispatch, each `[steps]` or `[steps, seeds]`."""
        self._pending.append(metrics)

    def save(self) -> None:
        """Moves the sums into each seed's progress, where a checkpoint takes them along."""
        for metrics in jax.device_get(self._pending):
            steps = len(next(iter(metrics.values())))
            columns = {name: value.reshape(steps, -1) for name, value in metrics.items()}
            # The sums are added step by step, so that a dispatch of several changes no bit.
            for index in range(steps):
                self._step += 1
                for seed, seed_run in enumerate(self._seed_runs):
                    row = {name: float(value[index, seed]) for name, value in columns.items()}
                    self._add(seed, seed_run, row)
        self._pending = []

    def _add(self, seed: int, seed_run: SeedRun, row: dict[str, float]) -> None:
        if not np.isfinite(list(row.values())).all():
            examples, _ = self._run.batches[seed](self._step - 1)
            ids = ", ".join(str(self._run.ids[example]) for example in examples[:3])
            raise UserError(
                f"{note_divergence(seed_run, self._step, row)}; its batch begins {ids}"
            )
        sums = seed_run.progress.sums
        for name, value in row.items():
            sums[name] = sums.get(name, 0.0) + value

    def take_means(self) -> list[dict[str, float]]:
        """The means of every seed; what is added later makes the next ones."""
        self.save()
        return [_means(seed_run.progress) for seed_run in self._seed_runs]


def _means(progress: Progress) -> dict[str, float]:
    """Sums by their own counts; a sum without a count stays, and one whose count is 0 does not.

    Where every step was skipped there is no mean loss.
    """
    sums, progress.sums = progress.sums, {}
    row = {}
    for name, total in sums.items():
        count = sums.get(f"{name}_count", 1.0)
        if count and not name.endswith("_count"):
            row[name] = total / count
    return row
