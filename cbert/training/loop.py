"""The training loop: batch, step, and now and then a row, an evaluation, a checkpoint."""

import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
from tqdm import tqdm

from cbert import files, parallel
from cbert.data import prepared
from cbert.errors import UserError
from cbert.schema import Schema
from cbert.training import config as config_lib
from cbert.training import console, item_vectors
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training import workdir as workdir_lib
from cbert.training.callbacks import Callback, Callbacks, Event
from cbert.training.checkpoint import Checkpoints, barrier
from cbert.training.initialize import Initializer
from cbert.training.item_vectors import ItemVectors
from cbert.training.metric_accumulator import MetricAccumulator, SeedRun, not_finite
from cbert.training.preemption import Stop
from cbert.training.run import Run
from cbert.training.state import Progress, TrainState
from cbert.training.writer import Writer


def train(
    config: ml_collections.ConfigDict,
    workdir: str | pathlib.Path,
    callbacks: Callbacks | None = None,
) -> Progress:
    """Trains, or goes on training, in a work directory.

    Raises:
      UserError: the config, the data or the work directory are not what they must be.
    """
    return train_seeds(config, [config.seed], [workdir], callbacks=callbacks)[0]


def train_seeds(
    config: ml_collections.ConfigDict,
    seeds: Sequence[int],
    workdirs: Sequence[str | pathlib.Path],
    wait: bool = False,
    callbacks: Callbacks | None = None,
) -> list[Progress]:
    """Trains the seeds of one config in one program, each in its own work directory.

    With `wait`, a work directory in which another process trains is waited for, not refused.

    Raises:
      UserError: as `train`; or seeds and work directories do not match; or there are callbacks
        for several seeds.
    """
    callbacks = callbacks or Callbacks()
    if len(seeds) > 1 and callbacks != Callbacks():
        raise UserError("callbacks are for one seed; train the seeds one by one")
    configs = [_of_seed(config, seed) for seed in seeds]
    paths = [pathlib.Path(workdir).expanduser() for workdir in workdirs]
    _check_seeds(config, seeds, paths)
    for one in configs:
        config_lib.check(one)
    schema = prepared.load_schema(config.data.dir, config.data.name)
    for one, path in zip(configs, paths, strict=True):
        workdir_lib.check(one, schema, path)
    # A resumed run goes without the file. Else a mistake in it shows before the compilation.
    resumes = any(workdir_lib.has_checkpoints(path) for path in paths)
    vectors = None if resumes else item_vectors.of_config(config, schema)
    with contextlib.ExitStack() as stack:
        if not parallel.is_first():  # One process speaks for all.
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        stop = stack.enter_context(Stop())
        run = run_lib.set_up(config, schema, seeds)
        for one, path in zip(configs, paths, strict=True):
            if parallel.is_first():
                stack.enter_context(files.Lock(path, "work directory", wait))
                workdir_lib.initialise_workdir(one, schema, path)
        with parallel.error_context():
            seed_runs = _open(stack, run, paths)
            if not _step(run):
                run.set_states(initialised(config, run, schema, vectors))
            if not _ended(config, seed_runs, _step(run)):
                with console.bar(config, len(seed_runs), _step(run)) as bar:
                    _loop(config, run, seed_runs, stop, bar, callbacks)
    if _ended(config, seed_runs, _step(run)) and parallel.is_first():
        for seed_run in seed_runs:
            best = {"best": seed_run.progress.best, "best_step": seed_run.progress.best_step}
            workdir_lib.finish(seed_run.workdir, {"step": _step(run), **best})
    return [seed_run.progress for seed_run in seed_runs]


def initialised(
    config: ml_collections.ConfigDict,
    run: Run,
    schema: Schema,
    vectors: ItemVectors | None = None,
) -> list[TrainState]:
    """Each seed's state before the first step.

    Its parameters are those of `train.init_from`, and then the items' embeddings those of
    `train.item_embeddings`, which `vectors` holds if they were read before.
    """
    initializers: list[Callable[[Any], Any]] = []
    if config.train.init_from:
        initializers.append(Initializer(config.train.init_from, run.task, schema))
    if vectors := vectors or item_vectors.of_config(config, schema):
        initializers.append(vectors)
    if not initializers:
        return run.states()

    def begun(state: TrainState) -> TrainState:
        params = run.placement.gather(state.params)
        for initializer in initializers:
            params = initializer(params)
        return dataclasses.replace(state, params=run.placement.place(params))

    return [begun(state) for state in run.states()]


def _check_seeds(
    config: ml_collections.ConfigDict, seeds: Sequence[int], paths: Sequence[pathlib.Path]
) -> None:
    if len(seeds) != len(paths) or len(set(paths)) < len(paths):
        raise UserError(
            f"{len(seeds)} seeds, {len(set(paths))} work directories; each seed needs its own"
        )
    if len(set(seeds)) < len(seeds):
        raise UserError(f"the seeds are {', '.join(map(str, seeds))}; they must differ")
    if len(seeds) > 1 and config.train.patience:
        raise UserError("train.patience ends each seed at its own step; train them one by one")


def _of_seed(config: ml_collections.ConfigDict, seed: int) -> ml_collections.ConfigDict:
    own = config.copy_and_resolve_references()
    own.seed = seed
    return own


def _open(
    stack: contextlib.ExitStack, run: Run, paths: Sequence[pathlib.Path]
) -> list[SeedRun]:
    """Restores every seed at the newest step that all of them have, and opens its files."""
    others = not parallel.is_first()
    if others:
        barrier("the first process has opened the directory")
    opened = [stack.enter_context(Checkpoints(path, others)) for path in paths]
    if not others:
        barrier("the first process has opened the directory")
    restored = _restore(run, opened)
    # A seed may have no checkpoint of the step that another has: then an earlier one is tried.
    while (first := min(steps := [int(state.step) for state, _ in restored])) < max(steps):
        restored = _restore(run, opened, first)
    run.set_states([state for state, _ in restored])
    seed_runs = []
    for seed, path, own, (_, progress) in zip(run.seeds, paths, opened, restored, strict=True):
        if first:
            print(f"resuming {path} at step {first}", flush=True)
        name = f"seed {seed}  " if len(paths) > 1 else ""
        writer = stack.enter_context(Writer(path, first, others))
        seed_runs.append(SeedRun(name, path, progress, own, writer))
    return seed_runs


def _restore(
    run: Run, opened: Sequence[Checkpoints], step: int | None = None
) -> list[tuple[TrainState, Progress]]:
    """Each seed's newest state, or that of a step; a seed without a checkpoint is at step 0."""
    restored = []
    for state, checkpoints in zip(run.states(), opened, strict=True):
        fresh = state_lib.to_saved(state, run.placement)
        saved, progress = checkpoints.restore(fresh, step)
        restored.append((state_lib.from_saved(saved, state, run.placement), progress))
    return restored


def _step(run: Run) -> int:
    return int(np.ravel(jax.device_get(run.state.step))[0])


def _ended(config: ml_collections.ConfigDict, seed_runs: Sequence[SeedRun], step: int) -> bool:
    patience = config.train.patience
    return step >= config.train.steps or 0 < patience <= seed_runs[0].progress.waited


def _loop(
    config: ml_collections.ConfigDict,
    run: Run,
    seed_runs: Sequence[SeedRun],
    stop: Stop,
    bar: tqdm,
    callbacks: Callbacks,
) -> None:
    tell = functools.partial(_tell, run, seed_runs[0], stop)
    step, ended = _step(run), False
    accumulator, dispatches = MetricAccumulator(run, seed_runs, step), 0
    clock = console.Clock(config, len(seed_runs), step, bar)
    while not (ended or stop.requested):
        taken, metrics = run.advance(step, _most(config, step))
        step, dispatches = step + taken, dispatches + 1
        accumulator.add(metrics, taken)
        tell(callbacks.step, step, metrics)
        bar.update(taken * config.train.batch_size * len(seed_runs))
        last = step == config.train.steps
        if last or step % config.train.log_every == 0:
            _write_rows(run, seed_runs, accumulator, clock, step)
        improved = False
        if last or step % config.train.eval_every == 0:
            improved, validated = _validate(run, seed_runs, step)
            tell(callbacks.validation, step, validated)
            ended = _ended(config, seed_runs, step)
        if parallel.process_count() > 1:
            stop.requested |= parallel.should_stop(dispatches)
        due = step % config.train.checkpoint_every == 0
        if stop.requested:
            stop.answer()
        if improved or ended or due or stop.requested:
            _save(run, seed_runs, accumulator)
            tell(callbacks.checkpoint, step, {})
    if ended and not last:
        tqdm.write(
            f"stopped at step {step}: no better for {seed_runs[0].progress.waited} evaluations"
        )


def _most(config: ml_collections.ConfigDict, step: int) -> int:
    """The number of steps in one dispatch: those wanted, if no row or the like is between."""
    every = (config.train.log_every, config.train.eval_every, config.train.checkpoint_every)
    room = min(number - step % number for number in every)
    wanted = config.train.steps_per_dispatch
    return wanted if wanted <= min(room, config.train.steps - step) else 1


def _write_rows(
    run: Run,
    seed_runs: Sequence[SeedRun],
    accumulator: MetricAccumulator,
    clock: console.Clock,
    step: int,
) -> None:
    rate = {"learning_rate": float(run.learning_rate(step - 1))}
    rows = [{**row, **rate} for row in accumulator.close()]
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    speed = clock.report(step, mean)
    for seed_run, row in zip(seed_runs, rows, strict=True):
        seed_run.writer.write(step, "train", row, examples_per_second=speed)


def _tell(
    run: Run,
    seed_run: SeedRun,
    stop: Stop,
    callback: Callback | None,
    step: int,
    metrics: Mapping[str, Any],
) -> None:
    """Calls a callback, which may ask the run to end."""
    if callback and callback(Event(step, seed_run.workdir, run.state, metrics)):
        stop.requested = True


def _validate(
    run: Run, seed_runs: Sequence[SeedRun], step: int
) -> tuple[bool, dict[str, float]]:
    """Evaluates every seed, and notes whether it is the best so far.

    Returns whether any is, and the metrics of the last one.
    """
    metric, any_improved = run.task.metrics[0], False
    metrics: dict[str, float] = {}
    for seed_run, state in zip(seed_runs, run.states(), strict=True):
        metrics, progress = run.validation(state.params), seed_run.progress
        value = metrics[metric.name]
        if not np.isfinite(value):
            raise UserError(not_finite(seed_run, step, metrics))
        seed_run.writer.write(step, "validation", metrics)
        improved = not progress.best_step or metric.improves(value, progress.best)
        if improved:
            progress.best, progress.best_step, progress.waited = value, step, 0
        else:
            progress.waited += 1
        shown = [one for one in run.task.metrics if one.name in run.task.shown]
        texts = [f"{one.heading} {one.text(metrics[one.name])}" for one in shown]
        console.validated(seed_run.name, step, texts, improved)
        any_improved |= improved
    return any_improved, metrics


def _save(run: Run, seed_runs: Sequence[SeedRun], accumulator: MetricAccumulator) -> None:
    """A checkpoint of every seed, so that all go on from one step."""
    accumulator.save()
    for seed_run, state in zip(seed_runs, run.states(), strict=True):
        seed_run.writer.flush()
        if parallel.is_first():
            saved = state_lib.to_saved(state, run.placement)
            seed_run.checkpoints.save(saved, seed_run.progress)
