"""What a person sees of a training run: a bar at a terminal, lines elsewhere."""

import time

import ml_collections
from tqdm import tqdm

from cbert import progress


def bar(config: ml_collections.ConfigDict, seeds: int, first: int) -> tqdm:
    """A bar over all sets of all seeds, `first` steps of it done."""
    size = config.train.batch_size * seeds
    return progress.bar(
        desc=f"training {config.model.method}",
        total=config.train.steps * size,
        initial=first * size,
        unit=" sets",
        unit_scale=True,
        delay=0,
        smoothing=0.05,
    )


class Clock:
    """Rate and time left, on the bar or, where there is no terminal, as lines."""

    def __init__(
        self, config: ml_collections.ConfigDict, seeds: int, step: int, shown: tqdm
    ) -> None:
        self._steps, self._size = config.train.steps, config.train.batch_size * seeds
        self._bar = shown
        self._step, self._time = step, time.perf_counter()

    def report(self, step: int, row: dict[str, float]) -> float:
        """Shows loss and learning rate; returns the sets a second since the last report."""
        now = time.perf_counter()
        rate = (step - self._step) / (now - self._time)
        self._step, self._time = step, now
        shown = f"loss {row['loss']:.4f}  learning rate {row['learning_rate']:.1e}"
        if row.get("skipped"):
            shown += f"  skipped {row['skipped']:.0f}"
        if self._bar.disable:
            print(
                f"step {step:>7}  {shown}  {rate * self._size:,.0f} sets/s  "
                f"{(self._steps - step) / rate:,.0f} s left",
                flush=True,
            )
        else:
            self._bar.set_postfix_str(shown)
        return rate * self._size


def validated(seed: str, step: int, found: dict[str, float], improved: bool) -> None:
    """One line an evaluation."""
    tqdm.write(
        f"step {step:>7}  {seed}validation cross-entropy {found['cross_entropy']:.4f}  "
        f"recall@5 {found['recall@5']:.2%}{'  best' if improved else ''}"
    )
