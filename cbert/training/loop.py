"""The training loop: batch, step, and now and then a row, an evaluation, a checkpoint."""

import contextlib
import functools
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np
from tqdm import tqdm

from cbert import directories, distributed, files
from cbert.config import flat
from cbert.data import prepared
from cbert.data.records import TRAIN
from cbert.errors import UserError
from cbert.schema import Schema, schema_file
from cbert.training import config as config_lib
from cbert.training import console, initialize, own_data
from cbert.training import run as run_lib
from cbert.training import workdir as workdir_lib
from cbert.training.callbacks import Callback, Callbacks, Event
from cbert.training.metric_accumulator import MetricAccumulator
from cbert.training.preemption import Stop
from cbert.training.run import Run
from cbert.training.seed_run import SeedRun, open_all, save_all, validate_all
from cbert.training.state import Progress


def train(
    config: ml_collections.ConfigDict,
    workdir: str | pathlib.Path,
    callbacks: Callbacks | None = None,
    stop: Stop | None = None,
) -> Progress:
    """Trains, or goes on training, in a work directory.

    Raises:
      UserError: the config, the data or the work directory are not what they must be.
    """
    return train_seeds(config, [config.seed], [workdir], callbacks=callbacks, stop=stop)[0]


def train_seeds(
    config: ml_collections.ConfigDict,
    seeds: Sequence[int],
    workdirs: Sequence[str | pathlib.Path],
    wait: bool = False,
    callbacks: Callbacks | None = None,
    stop: Stop | None = None,
) -> list[Progress]:
    """Trains the seeds of one config in one program, each in its own work directory.

    With `wait`, a work directory in which another process trains is waited for, not refused.
    The caller who gives `stop` sees afterwards what signal ended the run.

    Raises:
      UserError: as `train`; or seeds and work directories do not match; or there are callbacks
        for several seeds.
    """
    callbacks = callbacks or Callbacks()
    configs = [_of_seed(config, seed) for seed in seeds]
    paths = [pathlib.Path(workdir).expanduser() for workdir in workdirs]
    _check_seeds(config, seeds, paths, callbacks)
    schema = _checked_schema(config, configs, paths, seeds)
    # A resumed run goes without these files. Else a mistake in them shows before the
    # compilation, and before the work directory belongs to this config.
    resumes = all(workdir_lib.has_checkpoints(path) for path in paths)
    initializers = [] if resumes else initialize.read(config, schema)
    with contextlib.ExitStack() as stack:
        stack.enter_context(console.only_first_prints())
        stop = stack.enter_context(stop or Stop())
        run = run_lib.set_up(config, schema, seeds)
        states = [] if resumes else initialize.initialised(config, run, initializers)
        for one, path in zip(configs, paths, strict=True):
            if distributed.is_first():
                stack.enter_context(directories.Lock(path, "work directory", wait))
                own_data.note(one, path)
                workdir_lib.initialise_workdir(one, schema, path)
        with distributed.error_context():
            seed_runs = open_all(stack, run, paths)
            if initializers and not run.steps_taken:
                run.set_states(states)
            del states  # Or they would stay in memory beside those that are trained.
            if not _ended(config, seed_runs, run.steps_taken):
                for path in paths if distributed.is_first() else ():
                    workdir_lib.unfinish(path)
                with console.bar(config, len(seed_runs), run.steps_taken) as bar:
                    _loop(config, run, seed_runs, stop, bar, callbacks)
    if _ended(config, seed_runs, run.steps_taken) and distributed.is_first():
        for seed_run in seed_runs:
            workdir_lib.finish(seed_run.workdir, run.steps_taken, seed_run.progress)
    return [seed_run.progress for seed_run in seed_runs]


def _checked_schema(
    config: ml_collections.ConfigDict,
    configs: Sequence[ml_collections.ConfigDict],
    paths: Sequence[pathlib.Path],
    seeds: Sequence[int],
) -> Schema:
    """The schema of the data; raises `UserError` where a seed cannot train in its directory."""
    for one in configs:
        config_lib.check(one)
    schema = prepared.load_schema(config.data.dir, config.data.name)
    for one, path in zip(configs, paths, strict=True):
        workdir_lib.check(one, schema, path)
        own_data.check(one, path)
    if distributed.process_count() > 1:
        values = {**flat(config.to_dict()), "data.dir": "", "seeds": list(seeds)}
        described = f"{sorted(values.items())} {schema_file.text(schema)}"
        distributed.check_same("config or schema", described)
    if distributed.is_first():
        for path in paths:
            files.check_writable(path)
    return schema


def _check_seeds(
    config: ml_collections.ConfigDict,
    seeds: Sequence[int],
    paths: Sequence[pathlib.Path],
    callbacks: Callbacks,
) -> None:
    """Raises `UserError` where the seeds cannot be trained together."""
    if len(seeds) > 1 and callbacks != Callbacks():
        raise UserError("callbacks are for one seed; train the seeds one by one")
    if len(seeds) != len(paths) or len(set(paths)) < len(paths):
        raise UserError(
            f"number of seeds: {len(seeds)}, of work directories: {len(set(paths))}"
            f" ({', '.join(map(str, paths))}); each seed needs its own; commas separate them"
        )
    if len(set(seeds)) < len(seeds):
        raise UserError(f"the seeds are {', '.join(map(str, seeds))}; they must differ")
    if len(seeds) > 1 and config.train.patience:
        raise UserError("train.patience ends each seed at its own step; train them one by one")


def _of_seed(config: ml_collections.ConfigDict, seed: int) -> ml_collections.ConfigDict:
    """A copy of the config with that seed."""
    own = config.copy_and_resolve_references()
    own.seed = seed
    return own


def _ended(config: ml_collections.ConfigDict, seed_runs: Sequence[SeedRun], step: int) -> bool:
    """Whether the run is at its last step, or waited too long for a better validation."""
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
    """Takes steps until the run has ended or is asked to stop; the last of them is saved."""
    tell = functools.partial(_tell, run, seed_runs[0], stop)
    step, ended, saved = run.steps_taken, False, True
    accumulator, dispatches = MetricAccumulator(run, seed_runs, step), 0
    clock = console.Clock(config, len(seed_runs), step, bar)
    console.started(config, run)
    # A signal may come after a step that is not saved: then the next one is the last.
    while not (ended or (saved and stop.requested)):
        programs, before = len(run.compiled), time.perf_counter()
        taken, metrics = run.advance(step, _steps_at_once(config, step))
        if len(run.compiled) > programs:
            clock.leave_out(time.perf_counter() - before, taken)
        step, dispatches = step + taken, dispatches + 1
        accumulator.add(metrics)
        tell(callbacks.step, step, metrics)
        bar.update(taken * config.train.batch_size * len(seed_runs))
        last = step == config.train.steps
        if last or step % config.train.log_every == 0:
            _write_rows(run, seed_runs, accumulator, clock, step)
        improved = False
        if last or step % config.train.eval_every == 0:
            accumulator.save()  # Names a step that is not finite, before what follows.
            with clock.paused():
                improved, validated = validate_all(run, seed_runs, step)
            tell(callbacks.validation, step, validated)
            ended = _ended(config, seed_runs, step)
        if distributed.process_count() > 1:
            stop.requested |= distributed.should_stop(dispatches)
        due = step % config.train.checkpoint_every == 0
        if stopping := stop.requested:
            stop.answer()
        saved = improved or ended or due or stopping
        if saved:
            accumulator.save()
            save_all(run, seed_runs)
            tell(callbacks.checkpoint, step, {})
    stop.answer()  # The last save may take longer than a request is given.
    if ended and not last:
        tqdm.write(
            f"stopped at step {step}: no better for {seed_runs[0].progress.waited} evaluations"
        )


def _steps_at_once(config: ml_collections.ConfigDict, step: int) -> int:
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
    """Writes every seed's means since the last row, and shows the mean over seeds."""
    rate = {"learning_rate": float(run.learning_rate(step - 1))}
    rows = [{**row, **rate} for row in accumulator.take_means()]
    # A seed without a step in the window, or without weight in it, has no loss there.
    names = dict.fromkeys(name for row in rows for name in row)
    mean = {n: float(np.mean([row[n] for row in rows if n in row])) for n in names}
    speed = clock.report(step, mean)
    for seed_run, row in zip(seed_runs, rows, strict=True):
        seed_run.writer.write(step, TRAIN, row, **speed)


def _tell(
    run: Run,
    seed_run: SeedRun,
    stop: Stop,
    callback: Callback | None,
    step: int,
    metrics: Mapping[str, Any],
) -> None:
    """Calls a callback, which may ask the run to end."""
    # A copy, because the loop logs the metrics after a callback that may change them.
    if callback and callback(Event(step, seed_run.workdir, run.state, {**metrics})):
        stop.requested = True
