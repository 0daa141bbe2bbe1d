"""Checkpoints with Orbax: parameters apart from the optimizer's state, best and last kept."""

import dataclasses
import pathlib
from typing import Any

import jax
import orbax.checkpoint as ocp

from cbert.errors import UserError
from cbert.training import parallel
from cbert.training.state import TrainState

BEST, LAST = "best", "last"
# Other processes may still be compiling.
MEETING_SECONDS = 300


@dataclasses.dataclass
class Progress:
    """What a run knows beside its state; travels in every checkpoint.

    Attributes:
      best: Lowest validation cross-entropy so far, in nats.
      best_step: The step that it was measured at, 0 for none.
      waited: Evaluations since then.
      sums: Metrics summed since the last row that was written.
    """

    best: float = float("inf")
    best_step: int = 0
    waited: int = 0
    sums: dict[str, float] = dataclasses.field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one work directory; use as a context, saving is asynchronous."""

    def __init__(self, workdir: str | pathlib.Path, read_only: bool = False) -> None:
        self._path = pathlib.Path(workdir).absolute() / "checkpoints"
        self._best_step: int | None = None  # Unknown until the first save.
        writes = not read_only
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
        self._finish()
        self._manager.close()

    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def save(self, state: TrainState, progress: Progress) -> None:
        """Starts saving a step; of the older ones, the last and the best stay meanwhile."""
        self._finish()
        self._best_step = progress.best_step
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(_on_host(state.params)),
                opt_state=ocp.args.StandardSave(_on_host(state.opt_state)),
                progress=ocp.args.JsonSave(dataclasses.asdict(progress)),
            ),
        )

    def _finish(self) -> None:
        """Waits for the save under way, then deletes all but the last and the best."""
        self._manager.wait_until_finished()
        for old in self.steps()[:-1]:
            if self._best_step is not None and old != self._best_step:
                self._manager.delete(old)

    def restore(
        self, state: TrainState, step: int | None = None
    ) -> tuple[TrainState, Progress]:
        """The last state, to go on, or an older one that all later ones are dropped for.

        The given state where there is none yet, and for a step of 0.
        """
        if step is not None:
            for newer in self.steps():
                if newer > step:
                    self._manager.delete(newer)
        step = self._manager.latest_step()
        if step is None:
            return state, Progress()
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        found = self._restore(
            step,
            params=ocp.args.StandardRestore(abstract.params),
            opt_state=ocp.args.StandardRestore(abstract.opt_state),
            progress=ocp.args.JsonRestore(),
        )
        restored = TrainState(
            jax.device_put(step, state.step.sharding).astype(state.step.dtype),
            found["params"],
            found["opt_state"],
        )
        return restored, Progress(**found["progress"])

    def restore_params(self, which: str, params: Any) -> tuple[int, Any]:
        """The parameters of `best`, `last` or a step, shaped and placed like `params`."""
        step = self._find(which)
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, params)
        found = self._restore(step, params=ocp.args.StandardRestore(abstract))
        return step, found["params"]

    def _find(self, which: str) -> int:
        steps = self.steps()
        if not steps:
            raise UserError(f"{self._path}: no checkpoint; train first")
        if which == LAST:
            return steps[-1]
        if which == BEST:
            best = self._restore(steps[-1], progress=ocp.args.JsonRestore())["progress"]
            if best["best_step"] and best["best_step"] not in steps:
                raise UserError(
                    f"{self._path}: the best checkpoint, of step {best['best_step']}, is gone; "
                    f"use --checkpoint=last, step {steps[-1]}"
                )
            return best["best_step"] or steps[-1]
        if which.isdigit() and int(which) in steps:
            return int(which)
        known = ", ".join(map(str, steps))
        raise UserError(f"--checkpoint is {which!r}; use best, last or one of: {known}")

    def _restore(self, step: int, **items: Any) -> Any:
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**items))
        except (ValueError, KeyError, TypeError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{self._path / str(step)}: the checkpoint is damaged or of another model "
                f"({reason}); use another --checkpoint or a fresh --workdir"
            ) from None


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
