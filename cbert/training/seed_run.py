"""Each seed of a run with its own files: opened, restored, validated and saved together."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from cbert import distributed
from cbert.data.records import VALIDATION
from cbert.errors import UserError
from cbert.training import console, hardware
from cbert.training import state as state_lib
from cbert.training import workdir as workdir_lib
from cbert.training.checkpoint import Checkpoints, barrier
from cbert.training.run import Run
from cbert.training.state import Progress, TrainState
from cbert.training.writer import Writer


@dataclasses.dataclass
class SeedRun:
    """The files and the progress of one seed of a run.

    Attributes:
      name: What its lines on a terminal call it, `seed 1  `; empty for a single seed.
      workdir: Its directory.
      progress: Its progress, which is saved beside its state.
      checkpoints: Its checkpoints.
      writer: Its metrics.
    """

    name: str
    workdir: pathlib.Path
    progress: Progress
    checkpoints: Checkpoints
    writer: Writer


def open_all(
    stack: contextlib.ExitStack, run: Run, paths: Sequence[pathlib.Path]
) -> list[SeedRun]:
    """Restores every seed at the newest step that all of them have, and opens its files.

    Raises:
      UserError: the seeds have no step in common, a seed has not begun beside others that have,
        or a seed's checkpoints are damaged or of another run.
    """
    others = not distributed.is_first()
    if others:
        barrier("the first process has opened the directory")
    opened = [stack.enter_context(Checkpoints(path, others)) for path in paths]
    if not others:
        barrier("the first process has opened the directory")
    step, restored = _restore_common(run, paths, opened)
    run.set_states([state for state, _ in restored])
    seed_runs = []
    for seed, path, own, (_, progress) in zip(run.seeds, paths, opened, restored, strict=True):
        if step:
            # A finished run that has lost its last checkpoint goes on from an earlier one.
            done = (workdir_lib.finished(path) or {}).get("step") == step
            state = f"{path} is finished, at" if done else f"resuming {path} at"
            print(f"{state} step {step}", flush=True)
            if not done and (line := hardware.change(path)):
                print(line, flush=True)
        elif not others:
            hardware.note(path)
        name = f"seed {seed}  " if len(paths) > 1 else ""
        writer = stack.enter_context(Writer(path, step, others))
        seed_runs.append(SeedRun(name, path, progress, own, writer))
    return seed_runs


def _restore_common(
    run: Run, paths: Sequence[pathlib.Path], opened: Sequence[Checkpoints]
) -> tuple[int, list[tuple[TrainState, Progress]]]:
    """The newest step that all seeds have, 0 if one has not begun, and their states at it.

    Later checkpoints are deleted once all seeds are known to go on from that step.
    """
    restored = _restore_all(run, opened)
    _check_begun(paths, opened)
    # A seed may have no checkpoint of the step that another has: then an earlier one is tried.
    while (step := min(steps := [int(state.step) for state, _ in restored])) < max(steps):
        _check_common(paths, opened, step)
        restored = _restore_all(run, opened, step)
    for checkpoints in opened:
        checkpoints.delete_after(step)
    return step, restored


def _check_common(
    paths: Sequence[pathlib.Path], opened: Sequence[Checkpoints], step: int
) -> None:
    """Refuses seeds one of which has a step, and another only later ones."""
    if step and not all(checkpoints.has_usable(step) for checkpoints in opened):
        raise UserError(
            f"{', '.join(map(str, paths))} have no checkpoint of the same step; train each in "
            "a program of its own, in a sweep without vmap_seeds"
        )


def _check_begun(paths: Sequence[pathlib.Path], opened: Sequence[Checkpoints]) -> None:
    """Refuses a seed that has not begun beside others that would begin again with it.

    A program that is killed while its seeds save for the first time leaves one checkpoint at
    most, and no seed is finished: these begin again.
    """
    steps = {path: checkpoints.steps() for path, checkpoints in zip(paths, opened, strict=True)}
    fresh = [path for path in paths if not steps[path]]
    for path in paths if fresh else ():
        if len(steps[path]) > 1 or (steps[path] and workdir_lib.finished(path)):
            raise UserError(
                f"{fresh[0]} has no checkpoint and {path} is at step {max(steps[path])}; train "
                "seeds that have not begun in a program of their own"
            )


def _restore_all(
    run: Run, opened: Sequence[Checkpoints], step: int | None = None
) -> list[tuple[TrainState, Progress]]:
    """Each seed's newest state, or that of a step; a seed without a checkpoint is at step 0."""
    restored = []
    for state, checkpoints in zip(run.states(), opened, strict=True):
        fresh = state_lib.to_saved(state, run.placement)
        saved, progress = checkpoints.restore(fresh, step)
        restored.append((state_lib.from_saved(saved, state, run.placement), progress))
    return restored


def validate_all(
    run: Run, seed_runs: Sequence[SeedRun], step: int
) -> tuple[bool, dict[str, float]]:
    """Evaluates every seed, and notes whether it is the best so far.

    Returns whether any is, and the metrics of the last one.

    Raises:
      UserError: a seed's first metric is not finite; its metrics then say so.
    """
    metric, any_improved = run.task.metrics[0], False
    metrics: dict[str, float] = {}
    for seed_run, params in zip(seed_runs, run.params(), strict=True):
        metrics = run.validation(params)
        value = metrics[metric.name]
        if not np.isfinite(value):
            raise UserError(note_divergence(seed_run, step, metrics))
        seed_run.writer.write(step, VALIDATION, metrics)
        improved = seed_run.progress.note(metric, value, step)
        shown = [one for one in run.task.metrics if one.name in run.task.shown]
        texts = [f"{one.heading} {one.text(metrics[one.name])}" for one in shown]
        console.validated(seed_run.name, step, texts, improved)
        any_improved |= improved
    return any_improved, metrics


def save_all(run: Run, seed_runs: Sequence[SeedRun]) -> None:
    """A checkpoint of every seed, so that all go on from one step."""
    for seed_run, state in zip(seed_runs, run.states(), strict=True):
        seed_run.writer.flush()
        if distributed.is_first():
            saved = state_lib.to_saved(state, run.placement)
            seed_run.checkpoints.save(saved, seed_run.progress)


def note_divergence(seed_run: SeedRun, step: int, row: dict[str, float]) -> str:
    """Notes in the metrics that a number is not finite; one line with its step and remedies.

    A run that goes on from a checkpoint drops the note, as all rows after it.
    """
    seed_run.writer.write(step, workdir_lib.DIVERGED, {})
    steps = seed_run.checkpoints.steps()
    kept = f"the last checkpoint is of step {steps[-1]}" if steps else "there is no checkpoint"
    numbers = ", ".join(
        f"{name} {value:g}" for name, value in row.items() if not name.endswith("_count")
    )
    return (
        f"{seed_run.workdir}: a number is not finite at step {step} ({numbers}); {kept}; lower "
        "optimizer.learning_rate, or set train.on_nonfinite=skip and train in a fresh work "
        "directory"
    )
