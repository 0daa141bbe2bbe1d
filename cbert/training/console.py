"""The output of a training run for a person: a bar at a terminal, lines elsewhere."""

import contextlib
import math
import os
import time
from collections.abc import Iterator

import ml_collections
from tqdm import tqdm

from cbert import distributed, progress
from cbert.training import hardware
from cbert.training.run import Run


@contextlib.contextmanager
def only_first_prints() -> Iterator[None]:
    """Whatever another process than the first prints goes nowhere."""
    if distributed.is_first():
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
        yield


def bar(config: ml_collections.ConfigDict, seeds: int, first: int) -> tqdm:
    """A bar over all examples of all seeds, `first` steps of it done."""
    size = config.train.batch_size * seeds
    return progress.bar(
        desc=f"training {config.model.method}",
        total=config.train.steps * size,
        initial=first * size,
        unit=" examples",
        unit_scale=True,
        delay=0,
        smoothing=0.05,
    )


def started(config: ml_collections.ConfigDict, run: Run) -> None:
    """One line before the first step, which has to be compiled."""
    tqdm.write(
        f"training {config.model.method}: {len(run.ids):,} examples, {config.train.steps:,} "
        f"steps of {config.train.batch_size}, {hardware.describe()}; the first step of each "
        "padded length is compiled"
    )


class Clock:
    """Rate and time left, on the bar or, where there is no terminal, as lines."""

    def __init__(
        self, config: ml_collections.ConfigDict, seeds: int, step: int, shown: tqdm
    ) -> None:
        self._steps, self._size = config.train.steps, config.train.batch_size * seeds
        self._bar = shown
        self._step, self._time = step, time.perf_counter()

    def leave_out(self, seconds: float, steps: int = 0) -> None:
        """Leaves out time in which no steps were taken, or steps that were compiled."""
        self._time += seconds
        self._step += steps

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time of what is done inside."""
        before = time.perf_counter()
        yield
        self.leave_out(time.perf_counter() - before)

    def report(self, step: int, row: dict[str, float]) -> dict[str, float]:
        """Shows loss, learning rate and speed since the last report.

        Returns:
          `examples_per_second`, or nothing where every step was left out.
        """
        now = time.perf_counter()
        rate = (step - self._step) / (now - self._time)
        self._step, self._time = step, now
        loss = row.get("loss", math.nan)  # There is none where every step was skipped.
        shown = f"loss {loss:.4f}  learning rate {row['learning_rate']:.1e}"
        if row.get("skipped"):
            shown += f"  skipped {row['skipped']:.0f}"
        if not self._bar.disable:
            self._bar.set_postfix_str(shown, refresh=False)
        elif rate:
            left = (self._steps - step) / rate
            speed = f"{rate * self._size:,.0f} examples/s  {left:,.0f} s left"
            print(f"step {step:>7}  {shown}  {speed}", flush=True)
        else:
            print(f"step {step:>7}  {shown}", flush=True)
        return {"examples_per_second": rate * self._size} if rate else {}


def validated(seed: str, step: int, metrics: list[str], improved: bool) -> None:
    """One line for a validation."""
    best = "  best" if improved else ""
    tqdm.write(f"step {step:>7}  {seed}validation {'  '.join(metrics)}{best}")
