"""The training loop: batch, step, and now and then a row, an evaluation, a checkpoint."""

import contextlib
import os
import pathlib
from collections.abc import Sequence

import jax
import ml_collections
import numpy as np
from tqdm import tqdm

from cbert import files, parallel
from cbert.data import source
from cbert.errors import UserError
from cbert.training import config as config_lib
from cbert.training import console
from cbert.training import run as run_lib
from cbert.training import workdir as workdir_lib
from cbert.training.checkpoint import Checkpoints, meet
from cbert.training.run import Run
from cbert.training.state import Progress
from cbert.training.stop import Stop
from cbert.training.window import Part, Window, not_finite
from cbert.training.writer import Writer


def train(config: ml_collections.ConfigDict, workdir: str | pathlib.Path) -> Progress:
    """Trains, or goes on training, in a work directory.

    Raises:
      UserError: the config, the data or the work directory are not what they must be.
    """
    return train_seeds(config, [config.seed], [workdir])[0]


def train_seeds(
    config: ml_collections.ConfigDict,
    seeds: Sequence[int],
    workdirs: Sequence[str | pathlib.Path],
) -> list[Progress]:
    """Trains the seeds of one config in one program, a work directory each.

    Raises:
      UserError: as `train`; or seeds and work directories do not match.
    """
    configs = [_of_seed(config, seed) for seed in seeds]
    paths = [pathlib.Path(workdir).expanduser() for workdir in workdirs]
    _check_seeds(config, seeds, paths)
    for one in configs:
        config_lib.check(one)
    schema = source.load_schema(config.data.dir, config.data.name)
    for one, path in zip(configs, paths, strict=True):
        workdir_lib.check(one, schema, path)
    with contextlib.ExitStack() as stack:
        if not parallel.is_first():  # One process speaks for all.
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        stop = stack.enter_context(Stop())
        run = run_lib.set_up(config, schema, seeds)
        for one, path in zip(configs, paths, strict=True):
            if parallel.is_first():
                stack.enter_context(files.Lock(path, "--workdir"))
                workdir_lib.claim(one, schema, path)
        with parallel.together():
            parts = _open(stack, run, paths)
            if not _ended(config, parts, _step(run)):
                with console.bar(config, len(parts), _step(run)) as bar:
                    _loop(config, run, parts, stop, bar)
    if _ended(config, parts, _step(run)) and parallel.is_first():
        for part in parts:
            best = {"best": part.known.best, "best_step": part.known.best_step}
            workdir_lib.finish(part.workdir, {"step": _step(run), **best})
    return [part.known for part in parts]


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


def _open(stack: contextlib.ExitStack, run: Run, paths: Sequence[pathlib.Path]) -> list[Part]:
    """Restores every seed at the newest step that all of them have, and opens its files."""
    others = not parallel.is_first()
    if others:
        meet("the first process has opened the directory")
    opened = [stack.enter_context(Checkpoints(path, others)) for path in paths]
    if not others:
        meet("the first process has opened the directory")
    found = [own.restore(state) for own, state in zip(opened, run.states(), strict=True)]
    # A seed may have no checkpoint of the step that another has: then an earlier one is tried.
    while (first := min(steps := [int(state.step) for state, _ in found])) < max(steps):
        found = [
            own.restore(state, first) for own, state in zip(opened, run.states(), strict=True)
        ]
    run.set_states([state for state, _ in found])
    parts = []
    for batches, path, own, (_, known) in zip(run.batches, paths, opened, found, strict=True):
        if first:
            print(f"resuming {path} at step {first}", flush=True)
        name = f"seed {batches.seed}  " if len(paths) > 1 else ""
        writer = stack.enter_context(Writer(path, first, others))
        parts.append(Part(name, path, known, own, writer))
    return parts


def _step(run: Run) -> int:
    return int(np.ravel(jax.device_get(run.state.step))[0])


def _ended(config: ml_collections.ConfigDict, parts: Sequence[Part], step: int) -> bool:
    patience = config.train.patience
    return step >= config.train.steps or 0 < patience <= parts[0].known.waited


def _loop(
    config: ml_collections.ConfigDict,
    run: Run,
    parts: Sequence[Part],
    stop: Stop,
    bar: tqdm,
) -> None:
    step, ended = _step(run), False
    window, dispatches = Window(run, parts, step), 0
    clock = console.Clock(config, len(parts), step, bar)
    while not (ended or stop.requested):
        taken, found = run.advance(step, _most(config, step))
        step, dispatches = step + taken, dispatches + 1
        window.add(found, taken)
        bar.update(taken * config.train.batch_size * len(parts))
        last = step == config.train.steps
        if last or step % config.train.log_every == 0:
            _write_rows(run, parts, window, clock, step)
        improved = False
        if last or step % config.train.eval_every == 0:
            improved = _validate(run, parts, step)
            ended = _ended(config, parts, step)
        if parallel.process_count() > 1:
            stop.requested = parallel.told_to_stop(dispatches)
        due = step % config.train.checkpoint_every == 0
        if stop.requested:
            stop.answer()
        if improved or ended or due or stop.requested:
            _save(run, parts, window)
    if ended and not last:
        tqdm.write(f"stopped at step {step}: no better for {parts[0].known.waited} evaluations")


def _most(config: ml_collections.ConfigDict, step: int) -> int:
    """How many steps go into one dispatch: those wanted, if no row or the like is between."""
    every = (config.train.log_every, config.train.eval_every, config.train.checkpoint_every)
    room = min(number - step % number for number in every)
    wanted = config.train.steps_per_dispatch
    return wanted if wanted <= min(room, config.train.steps - step) else 1


def _write_rows(
    run: Run, parts: Sequence[Part], window: Window, clock: console.Clock, step: int
) -> None:
    rate = {"learning_rate": float(run.rate(step - 1))}
    rows = [{**row, **rate} for row in window.close()]
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    speed = clock.report(step, mean)
    for part, row in zip(parts, rows, strict=True):
        part.writer.write(step, "train", row, sets_per_second=speed)


def _validate(run: Run, parts: Sequence[Part], step: int) -> bool:
    """Evaluates every seed, and notes whether it is the best so far; True if any is."""
    any_improved = False
    for part, state in zip(parts, run.states(), strict=True):
        found, known = run.validation(state.params), part.known
        if not np.isfinite(found["cross_entropy"]):
            raise UserError(not_finite(part, step, found))
        part.writer.write(step, "validation", found)
        improved = found["cross_entropy"] < known.best
        if improved:
            known.best, known.best_step, known.waited = found["cross_entropy"], step, 0
        else:
            known.waited += 1
        console.validated(part.name, step, found, improved)
        any_improved |= improved
    return any_improved


def _save(run: Run, parts: Sequence[Part], window: Window) -> None:
    """A checkpoint of every seed, so that all go on from one step."""
    window.save()
    for part, state in zip(parts, run.states(), strict=True):
        part.writer.flush()
        if parallel.is_first():
            part.checkpoints.save(state, part.known)
