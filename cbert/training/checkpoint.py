"""Checkpoints with Orbax: parameters apart from the optimizer's state, best and last kept.

Orbax writes a checkpoint in the background and moves it into place. The checksums follow at
once, in the background too. What is read back is verified first, see `checkpoint_reader.py`.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from orbax.checkpoint import checkpoint_managers

from cbert import distributed, parallel
from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.training import checksums
from cbert.training import config as config_lib
from cbert.training import workdir as workdir_lib
from cbert.training.checkpoint_reader import CONFIG_ITEM, CheckpointReader
from cbert.training.state import Progress, TrainState

BEST, LAST = "best", "last"
# The last checkpoint is not verified before its checksums are written. Until then, the one
# before it has to stay.
LATEST_KEPT = 2
# Other processes may still be compiling when this one is at a barrier.
BARRIER_SECONDS = 300


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Absl's loggers say errors at most, and as little as before where that was less."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(min(verbosity, logging.ERROR))
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


class Checkpoints:
    """The checkpoints of one work directory; a context manager, because saving is asynchronous.

    The best checkpoint and the last two are kept.
    """

    def __init__(self, workdir: str | pathlib.Path, read_only: bool = False) -> None:
        """Opens the directory of a run.

        Raises:
          UserError: the directory holds no run's config.
        """
        self._path = pathlib.Path(workdir).absolute() / workdir_lib.CHECKPOINTS
        self._config = config_lib.own_fields(config_lib.load(workdir))
        self._background = futures.ThreadPoolExecutor(1, "checksums")
        self._sealing: futures.Future | None = None
        self._writes = writes = not read_only
        if writes:
            self._path.mkdir(parents=True, exist_ok=True)
        self._kept = checkpoint_managers.AnyPreservationPolicy([])  # Each save sets it.
        options = ocp.CheckpointManagerOptions(
            create=False,
            cleanup_tmp_directories=writes,
            read_only=read_only,
            save_interval_steps=int(writes),
            preservation_policy=self._kept,
            multiprocessing_options=_single_process_options(),
        )
        items = ("params", "opt_state", "progress", CONFIG_ITEM)
        # Orbax warns that a directory is only read, which is what it was asked to do.
        with _without_warnings() if read_only else contextlib.nullcontext():
            self._manager = ocp.CheckpointManager(self._path, options=options, item_names=items)
        self._reader = CheckpointReader(self._path, self._config, self._manager)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._finish()
        finally:
            self._background.shutdown()
            self._manager.close()

    def steps(self) -> list[int]:
        """The steps whose checkpoints are on the disk, whether damaged or not."""
        return self._reader.steps()

    def save(self, state: TrainState, progress: Progress) -> None:
        """Starts to save a step. Orbax deletes older ones once the new one is in place.

        Raises:
          OSError, ValueError: the save before this one failed; nothing was deleted for it.
        """
        self._finish()
        self._kept.policies = [
            checkpoint_managers.LatestN(LATEST_KEPT),
            checkpoint_managers.CustomSteps([progress.best_step]),
        ]
        step = int(state.step)
        self._manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(_on_host(state.params)),
                opt_state=ocp.args.StandardSave(_on_host(state.opt_state)),
                progress=ocp.args.JsonSave(dataclasses.asdict(progress)),
                config=ocp.args.JsonSave(self._config),
            ),
        )
        self._sealing = self._background.submit(self._seal, step)

    def _seal(self, step: int) -> None:
        self._manager.wait_until_finished()
        checksums.write(self._path / str(step))

    def _finish(self) -> None:
        """Waits for the save that is under way."""
        sealing, self._sealing = self._sealing, None
        self._manager.wait_until_finished()
        if sealing:
            sealing.result()

    def restore(
        self, state: TrainState, step: int | None = None
    ) -> tuple[TrainState, Progress]:
        """The state to go on from: the last one, or the last one up to a step.

        Returns the given state if there is no checkpoint yet, and for a step of 0. Checkpoints
        after the given step stay, see `delete_after`. Damaged ones are passed over with one
        line that names them, and renamed to `<step>.unusable`, so that the run can save these
        steps again.

        Raises:
          UserError: there are checkpoints, and all are damaged, or the last belongs to another
            run.
        """
        steps = self._up_to(step)
        if not steps:
            return state, Progress()
        found, items = self._newest(steps, **_restores(state))
        return _restored(found, items, state), items["progress"]

    def has_usable(self, step: int) -> bool:
        """Whether there is a checkpoint of that step or an earlier one that is not damaged."""
        return any(map(self._reader.is_usable, self._up_to(step)))

    def delete_after(self, step: int) -> None:
        """Deletes the checkpoints of later steps, for a run that goes on from that one."""
        for one in self.steps() if self._writes else ():
            if one > step:
                self._manager.delete(one)

    def _up_to(self, step: int | None) -> list[int]:
        """The steps on the disk, or those of them that are not after a step."""
        return [one for one in self.steps() if step is None or one <= step]

    def newest(self) -> tuple[int, Progress]:
        """The last step and the progress at it, 0 and none before the first checkpoint.

        Damaged checkpoints are passed over and renamed, as `restore` does.

        Raises:
          UserError: as `restore`.
        """
        if not self.steps():
            return 0, Progress()
        found, items = self._newest(self.steps())
        return found, items["progress"]

    def _newest(self, steps: list[int], **items: Any) -> tuple[int, dict[str, Any]]:
        """The newest usable one of some steps, and its items, the progress among them.

        Renames damaged checkpoints after it, so that the run can save their steps again.
        """
        found, read = self._reader.newest(steps, progress=ocp.args.JsonRestore(), **items)
        if self._writes:
            for step in (one for one in steps if one > found):
                aside = self._path / f"{step}{workdir_lib.UNUSABLE}"
                shutil.rmtree(aside, ignore_errors=True)
                os.rename(self._path / str(step), aside)
            self._manager.reload()
        return found, read

    def restore_params(self, which: str, params: Any) -> tuple[int, Any]:
        """The parameters of `best`, `last` or a step, shaped and placed like `params`.

        If the last checkpoint is damaged, the newest whole one counts as the last, a line says
        so, and `best` is the step that the newest whole one knows as the best.

        Raises:
          UserError: there is no such checkpoint, or it is damaged or belongs to another run.
        """
        step, items = self._read(which, params=ocp.args.StandardRestore(_abstract(params)))
        return step, items["params"]

    def restore_state(self, which: str, state: TrainState) -> TrainState:
        """The state of `best`, `last` or a step, chosen as `restore_params` does."""
        return _restored(*self._read(which, **_restores(state)), state)

    def _read(self, which: str, **items: Any) -> tuple[int, dict[str, Any]]:
        """The step of `best`, `last` or a step, and its items."""
        if not self.steps():
            raise UserError(f"{self._path}: no checkpoint; train first")
        if which == LAST:
            return self._reader.newest(self.steps(), **items)
        step = self._reader.best() if which == BEST else self._reader.named(which)
        return step, self._reader.read(step, **items)


def read_params(
    workdir: str | pathlib.Path,
    which: str,
    model: parameter_tree.Model,
    place: Callable[[Any], Any] = parallel.replicated,
) -> tuple[int, Any]:
    """The step and the parameters of a run's checkpoint `best`, `last` or of a step.

    `place` takes the parameters' shapes to what they are restored into, by default on every
    device; see `Checkpoints.restore_params`.
    """
    with Checkpoints(workdir, read_only=True) as checkpoints:
        return checkpoints.restore_params(which, place(parameter_tree.shapes(model)))


def barrier(name: str) -> None:
    """Waits until all processes of the run have come to the barrier of that name."""
    everyone = set(range(distributed.process_count()))
    ocp.multihost.sync_global_processes(name, timeout=BARRIER_SECONDS, processes=everyone)


def _single_process_options() -> ocp.options.MultiprocessingOptions:
    """Options with which each process saves and restores alone.

    Of several processes that train together only the first saves, and each of them restores
    for itself, so Orbax must not wait for the others.
    """
    if distributed.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    here = distributed.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"process_{here}"
    )


def _restores(state: TrainState) -> dict[str, ocp.args.StandardRestore]:
    """What to read of a checkpoint for a state like the given one."""
    abstract = _abstract(state)
    return {
        "params": ocp.args.StandardRestore(abstract.params),
        "opt_state": ocp.args.StandardRestore(abstract.opt_state),
    }


def _restored(step: int, items: dict[str, Any], like: TrainState) -> TrainState:
    """The state of a step whose items were read."""
    count = jax.device_put(step, like.step.sharding).astype(like.step.dtype)
    return TrainState(count, items["params"], items["opt_state"])


def _abstract(tree: Any) -> Any:
    """What to restore into: arrays of the host are restored there, all others on devices."""
    return jax.tree.map(
        lambda leaf: (
            leaf if isinstance(leaf, np.ndarray) else ocp.utils.to_shape_dtype_struct(leaf)
        ),
        tree,
    )


def _on_host(tree: Any) -> Any:
    """Copies arrays to the host if there are several processes.

    Orbax would refuse to save arrays that are on the devices of one process alone.
    """
    return jax.device_get(tree) if distributed.process_count() > 1 else tree
