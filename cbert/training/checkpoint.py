"""Checkpoints with Orbax: parameters apart from the optimizer's state, best and last kept.

Each is verified by its checksums before anything in it is used, see `checksums.py`. Orbax
writes a checkpoint in the background and moves it into place; the checksums follow at once,
in the background too. A process that is killed in the moment between the two leaves a
checkpoint that restores but cannot be verified, as does an earlier version. It counts for less
than any that is verified: since a run that goes on from an earlier step arrives at the same
bits, little time is lost and nothing is trusted. Only where there is no verified one, or
where it is asked for by name, is it used, and a line says so.

Nothing in a checkpoint can run code: its files are JSON and, read by TensorStore, arrays;
neither Orbax nor this module unpickles, evaluates or imports what a file names.
"""

import dataclasses
import os
import pathlib
import re
import shutil
from concurrent import futures
from typing import Any

import jax
import orbax.checkpoint as ocp

from cbert import errors, parallel
from cbert.errors import UserError
from cbert.training import checksums
from cbert.training.state import Progress, TrainState

BEST, LAST = "best", "last"
UNUSABLE = ".unusable"
# Other processes may still be compiling.
MEETING_SECONDS = 300


class Checkpoints:
    """The checkpoints of one work directory; use as a context, saving is asynchronous."""

    def __init__(self, workdir: str | pathlib.Path, read_only: bool = False) -> None:
        self._path = pathlib.Path(workdir).absolute() / "checkpoints"
        self._best_step: int | None = None  # Unknown until the first save.
        self._background = futures.ThreadPoolExecutor(1, "checksums")
        self._sealing: futures.Future | None = None
        self._writes = writes = not read_only
        if writes:
            self._path.mkdir(parents=True, exist_ok=True)
        options = ocp.CheckpointManagerOptions(
            create=False,
            cleanup_tmp_directories=writes,
            read_only=read_only,
            save_interval_steps=int(writes),
            multiprocessing_options=_alone(),
        )
        self._manager = ocp.CheckpointManager(
            self._path, options=options, item_names=("params", "opt_state", "progress")
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._finish()
        finally:
            self._background.shutdown()
            self._manager.close()

    def steps(self) -> list[int]:
        """The steps that lie on the disk, damaged or not."""
        if not self._path.is_dir():
            return []
        found = (path.name for path in self._path.iterdir() if path.is_dir())
        return sorted(int(name) for name in found if re.fullmatch("[1-9][0-9]*", name))

    def save(self, state: TrainState, progress: Progress) -> None:
        """Starts saving a step; of the older ones, the last and the best stay meanwhile.

        Raises:
          OSError, ValueError: the save before this one failed; what it was to replace is kept.
        """
        self._finish()
        self._best_step = progress.best_step
        step = int(state.step)
        self._manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(_on_host(state.params)),
                opt_state=ocp.args.StandardSave(_on_host(state.opt_state)),
                progress=ocp.args.JsonSave(dataclasses.asdict(progress)),
            ),
        )
        self._sealing = self._background.submit(self._seal, step)

    def _seal(self, step: int) -> None:
        self._manager.wait_until_finished()
        checksums.write(self._path / str(step))

    def _finish(self) -> None:
        """Waits for the save under way, then deletes all but the last and the best."""
        sealing, self._sealing = self._sealing, None
        self._manager.wait_until_finished()
        if sealing:
            sealing.result()
        for old in sorted(self._manager.all_steps())[:-1]:
            if self._best_step is not None and old != self._best_step:
                self._manager.delete(old)

    def restore(
        self, state: TrainState, step: int | None = None
    ) -> tuple[TrainState, Progress]:
        """The last state, to go on, or an older one that all later ones are dropped for.

        The given state where there is none yet, and for a step of 0. Damaged checkpoints are
        passed over with one line that names them, and set aside as `<step>.unusable`, so that
        the run can save these steps again.

        Raises:
          UserError: there are checkpoints, and all are damaged or of another model.
        """
        if step is not None and self._writes:
            for newer in self.steps():
                if newer > step:
                    self._manager.delete(newer)
        steps = [n for n in self.steps() if step is None or n <= step]
        if not steps:
            return state, Progress()
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        step, found = self._newest(
            steps,
            params=ocp.args.StandardRestore(abstract.params),
            opt_state=ocp.args.StandardRestore(abstract.opt_state),
            progress=ocp.args.JsonRestore(),
        )
        if self._writes:
            self._set_aside(later_than=step)
        restored = TrainState(
            jax.device_put(step, state.step.sharding).astype(state.step.dtype),
            found["params"],
            found["opt_state"],
        )
        return restored, found["progress"]

    def restore_params(self, which: str, params: Any) -> tuple[int, Any]:
        """The parameters of `best`, `last` or a step, shaped and placed like `params`.

        Raises:
          UserError: there is no such checkpoint, or it is damaged or of another model. Where
            the last one is, the newest whole one is `last`, and `best` is what that one knows
            as the best; a line says so.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, params)
        wanted = ocp.args.StandardRestore(abstract)
        if not self.steps():
            raise UserError(f"{self._path}: no checkpoint; train first")
        if which == LAST:
            step, found = self._newest(self.steps(), params=wanted)
        else:
            step = self._best() if which == BEST else self._named(which)
            found = self._restore(step, params=wanted)
        return step, found["params"]

    def _best(self) -> int:
        last, found = self._newest(self.steps(), progress=ocp.args.JsonRestore())
        step = found["progress"].best_step or last
        advice = f"use --checkpoint=last, step {last}"
        if step not in self.steps():
            raise UserError(
                f"{self._path}: the best checkpoint, of step {step}, is gone; {advice}"
            )
        if step != last:
            self._check(step, f"it is the best; {advice}")
        return step

    def _named(self, which: str) -> int:
        known = ", ".join(map(str, self.steps()))
        if which not in map(str, self.steps()):
            raise UserError(f"--checkpoint is {which!r}; use best, last or one of: {known}")
        self._check(int(which), f"use best, last or one of: {known}")
        return int(which)

    def _check(self, step: int, advice: str) -> None:
        """Raises `UserError` where a step is damaged, says so where that cannot be known."""
        try:
            verified = checksums.verify(self._path / str(step))
        except checksums.DamagedError as error:
            raise UserError(f"{self._path / str(step)} is damaged: {error}; {advice}") from None
        if not verified:
            errors.warn(f"{self._path / str(step)} has no {checksums.NAME}: not verified")

    def _newest(self, steps: list[int], **items: Any) -> tuple[int, Any]:
        """The items of the newest of these that is whole; see the top of this module."""
        faults, unverified = [], []
        for step in reversed(steps):
            try:
                if checksums.verify(self._path / str(step)):
                    return step, self._instead(step, faults, items)
                unverified.append(step)
                faults.append(f"step {step} has no {checksums.NAME}")
            except checksums.DamagedError as error:
                faults.append(f"step {step} is damaged ({error})")
        for step in unverified:
            try:
                return step, self._instead(step, faults, items)
            except UserError as error:
                faults.append(str(error))
        raise UserError(
            f"{self._path}: no checkpoint is whole: {'; '.join(faults)}; restore the files or "
            "train with a fresh --workdir"
        )

    def _instead(self, step: int, faults: list[str], items: dict[str, Any]) -> Any:
        found = self._restore(step, **items)
        if faults:
            errors.warn(f"{self._path}: {'; '.join(faults)}; step {step} is used")
        return found

    def _restore(self, step: int, **items: Any) -> dict[str, Any]:
        try:
            found = dict(self._manager.restore(step, args=ocp.args.Composite(**items)))
            if "progress" in items:
                found["progress"] = Progress.from_dict(found["progress"])
            return found
        except Exception as error:  # What is damaged raises anything.
            raise UserError(
                f"{self._path / str(step)}: the checkpoint is damaged or of another model "
                f"({errors.one_line(error)[:200]}); use another --checkpoint or a fresh "
                "--workdir"
            ) from None

    def _set_aside(self, later_than: int) -> None:
        for step in self.steps():
            if step > later_than:
                aside = self._path / f"{step}{UNUSABLE}"
                shutil.rmtree(aside, ignore_errors=True)
                os.rename(self._path / str(step), aside)
        self._manager.reload()


def meet(place: str) -> None:
    """Waits until all processes of the run have come to the place of that name."""
    everyone = set(range(parallel.process_count()))
    ocp.multihost.sync_global_processes(place, timeout=MEETING_SECONDS, processes=everyone)


def _alone() -> ocp.options.MultiprocessingOptions:
    """Where several processes train together the first saves, and each restores, by itself."""
    if parallel.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    here = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"process_{here}"
    )


def _on_host(tree: Any) -> Any:
    """Orbax saves no array that lives in one process alone, where there are several."""
    return jax.device_get(tree) if parallel.process_count() > 1 else tree
