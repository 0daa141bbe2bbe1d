"""Checkpoints with Orbax: parameters apart from the optimizer's state, best and last kept.

Every checkpoint is verified before anything in it is used, in two ways. Its checksums say that
its files are as they were written (see `checksums.py`). Its config says that it belongs to the
run in whose directory it lies, and was not copied from another run.

Orbax writes a checkpoint in the background and moves it into place. The checksums follow at
once, in the background too. A process that is killed between the two leaves a checkpoint that
can be restored but not verified, and so does an earlier version of this module. A verified
checkpoint is preferred to such a one even if it is older: the run repeats some steps, arrives
at the same bits, and trusts nothing. A checkpoint that cannot be verified is used, with a
warning, only if no other can be, or if it is asked for by name.

Nothing in a checkpoint can run code. Its files are JSON, and arrays that TensorStore reads.
Neither Orbax nor this module unpickles, evaluates or imports what a file names.
"""

import dataclasses
import os
import pathlib
import re
import shutil
from concurrent import futures
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from cbert import errors, parallel
from cbert.errors import UserError
from cbert.training import checksums
from cbert.training import config as config_lib
from cbert.training import workdir as workdir_lib
from cbert.training.state import Progress, TrainState

BEST, LAST = "best", "last"
CONFIG = "config"
# The last checkpoint is not verified before its checksums are written. Until then, the one
# before it has to stay.
LATEST_KEPT = 2
# Other processes may still be compiling when this one is at a barrier.
BARRIER_SECONDS = 300


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
        self._config = config_lib.fields(config_lib.load(workdir))
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
        items = ("params", "opt_state", "progress", CONFIG)
        self._manager = ocp.CheckpointManager(self._path, options=options, item_names=items)

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
        if not self._path.is_dir():
            return []
        names = (path.name for path in self._path.iterdir() if path.is_dir())
        return sorted(int(name) for name in names if re.fullmatch("[1-9][0-9]*", name))

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
        after the given step are deleted. Damaged ones are passed over with one line that names
        them, and renamed to `<step>.unusable`, so that the run can save these steps again.

        Raises:
          UserError: there are checkpoints, and all are damaged, or the last belongs to another
            run.
        """
        if step is not None and self._writes:
            for newer in self.steps():
                if newer > step:
                    self._manager.delete(newer)
        steps = [n for n in self.steps() if step is None or n <= step]
        if not steps:
            return state, Progress()
        abstract = _abstract(state)
        step, items = self._newest(
            steps,
            params=ocp.args.StandardRestore(abstract.params),
            opt_state=ocp.args.StandardRestore(abstract.opt_state),
            progress=ocp.args.JsonRestore(),
        )
        if self._writes:
            self._set_aside(later_than=step)
        restored = TrainState(
            jax.device_put(step, state.step.sharding).astype(state.step.dtype),
            items["params"],
            items["opt_state"],
        )
        return restored, items["progress"]

    def restore_params(self, which: str, params: Any) -> tuple[int, Any]:
        """The parameters of `best`, `last` or a step, shaped and placed like `params`.

        If the last checkpoint is damaged, the newest whole one counts as the last, a line says
        so, and `best` is the step that the newest whole one knows as the best.

        Raises:
          UserError: there is no such checkpoint, or it is damaged or belongs to another run.
        """
        args = ocp.args.StandardRestore(_abstract(params))
        if not self.steps():
            raise UserError(f"{self._path}: no checkpoint; train first")
        if which == LAST:
            step, items = self._newest(self.steps(), params=args)
        else:
            step = self._best() if which == BEST else self._named(which)
            items = self._restore(step, params=args)
        return step, items["params"]

    def _best(self) -> int:
        last, items = self._newest(self.steps(), progress=ocp.args.JsonRestore())
        step = items["progress"].best_step or last
        advice = f"use the checkpoint last, of step {last}"
        if step not in self.steps():
            raise UserError(
                f"{self._path}: the best checkpoint, of step {step}, is gone; {advice}"
            )
        if step != last:
            self._verify(step, f"it is the best; {advice}")
        return step

    def _named(self, which: str) -> int:
        known = ", ".join(map(str, self.steps()))
        if which not in map(str, self.steps()):
            raise UserError(f"checkpoint is {which!r}; use best, last or one of: {known}")
        self._verify(int(which), f"use best, last or one of: {known}")
        return int(which)

    def _verify(self, step: int, advice: str) -> None:
        """Raises `UserError` if a checkpoint is damaged, and warns if that cannot be known."""
        try:
            verified = checksums.verify(self._path / str(step))
        except checksums.DamagedError as error:
            raise UserError(f"{self._path / str(step)} is damaged: {error}; {advice}") from None
        if not verified:
            errors.warn(f"{self._path / str(step)} has no {checksums.NAME}: not verified")

    def _newest(self, steps: list[int], **items: Any) -> tuple[int, dict[str, Any]]:
        """The newest usable step, as the top of this module defines usable, and its items."""
        faults: list[str] = []
        unverified: list[int] = []
        for step in reversed(steps):
            try:
                if checksums.verify(self._path / str(step)):
                    return step, self._restore_instead(step, faults, items)
                unverified.append(step)
                faults.append(f"step {step} has no {checksums.NAME}")
            except checksums.DamagedError as error:
                faults.append(f"step {step} is damaged ({error})")
        for step in unverified:
            try:
                return step, self._restore_instead(step, faults, items)
            except UserError as error:
                faults.append(str(error))
        raise UserError(
            f"{self._path}: no checkpoint is whole: {'; '.join(faults)}; restore the files or "
            "train in a fresh work directory"
        )

    def _restore_instead(
        self, step: int, faults: list[str], items: dict[str, Any]
    ) -> dict[str, Any]:
        """Restores a step, and warns about the faults of newer ones."""
        restored = self._restore(step, **items)
        if faults:
            errors.warn(f"{self._path}: {'; '.join(faults)}; step {step} is used")
        return restored

    def _restore(self, step: int, **items: Any) -> dict[str, Any]:
        """Restores items of a step, after a look at whose it is."""
        path = self._path / str(step)
        if (path / CONFIG).exists():
            self._check_config(path, self._read(step, config=ocp.args.JsonRestore())[CONFIG])
        elif "params" in items:
            errors.warn(f"{path} holds no config: it may be another run's")
        return self._read(step, **items)

    def _check_config(self, path: pathlib.Path, fields: Any) -> None:
        """Refuses a checkpoint whose config differs from the run's.

        Only fields that both have are compared; another version may know others.
        """
        if not isinstance(fields, dict):
            raise UserError(f"{path}: its config is damaged; use another checkpoint")
        differences = [
            f"{name} ({errors.shown(fields[name])} in the checkpoint, {value!r} in the run)"
            for name, value in sorted(self._config.items())
            if name in fields and fields[name] != value
        ]
        if differences:
            raise UserError(
                f"{path} belongs to another run: {'; '.join(differences)}; remove it, or use "
                "the work directory that it was saved in"
            )

    def _read(self, step: int, **items: Any) -> dict[str, Any]:
        try:
            read = dict(self._manager.restore(step, args=ocp.args.Composite(**items)))
            if "progress" in items:
                read["progress"] = Progress.from_dict(read["progress"])
            return read
        except Exception as error:  # Orbax raises errors of many types over damaged files.
            raise UserError(
                f"{self._path / str(step)}: the checkpoint is damaged or of another model "
                f"({errors.one_line(error)[:200]}); use another checkpoint or a fresh work "
                "directory"
            ) from None

    def _set_aside(self, later_than: int) -> None:
        for step in self.steps():
            if step > later_than:
                aside = self._path / f"{step}{workdir_lib.UNUSABLE}"
                shutil.rmtree(aside, ignore_errors=True)
                os.rename(self._path / str(step), aside)
        self._manager.reload()


def barrier(name: str) -> None:
    """Waits until all processes of the run have come to the barrier of that name."""
    everyone = set(range(parallel.process_count()))
    ocp.multihost.sync_global_processes(name, timeout=BARRIER_SECONDS, processes=everyone)


def _single_process_options() -> ocp.options.MultiprocessingOptions:
    """Options with which each process saves and restores alone.

    Of several processes that train together only the first saves, and each of them restores
    for itself, so Orbax must not wait for the others.
    """
    if parallel.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    here = parallel.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"process_{here}"
    )


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
    return jax.device_get(tree) if parallel.process_count() > 1 else tree
