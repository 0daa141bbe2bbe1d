"""A model before its first step, for a training loop of one's own.

Legend: B examples of a batch.
"""

import dataclasses
import math
import operator
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np

from cbert import directories, parallel
from cbert.data import in_memory, prepared
from cbert.data.columns import Split
from cbert.errors import UserError, check_kind, check_path, shown
from cbert.schema import Schema
from cbert.schema.values import LARGEST_SIZE
from cbert.tasks.base import Examples, Task
from cbert.training import config as config_lib
from cbert.training import initialize, own_data
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training import workdir as workdir_lib
from cbert.training.checkpoint import Checkpoints
from cbert.training.state import TrainState

PathLike = str | pathlib.Path
Sums = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A model before its first step, and what a loop of one's own needs.

    Attributes:
      config: The config.
      schema: The data's schema.
      task: The task: its loss, its predictions and, as `task.model`, the Flax module.
      state: The state before the first step: `step`, `params` and `opt_state`.
      key: What all randomness of the steps comes from.
      train_step: `train_step(state, batch, key)` returns the next state and sums of metrics
        with their `<name>_count`. It is pure, and made for `jax.jit`.
    """

    config: ml_collections.ConfigDict
    schema: Schema
    task: Task
    state: TrainState
    key: jax.Array
    train_step: Callable[[TrainState, Examples, jax.Array], tuple[TrainState, Sums]]
    _run: run_lib.Run = dataclasses.field(repr=False)
    _train: Split = dataclasses.field(repr=False)

    def __repr__(self) -> str:
        """A line, because a config and a vocabulary would fill pages of a notebook."""
        what = f"{self.config.model.method}, {self.task.name}, {len(self._train):,} examples"
        return f"Experiment({what}, {state_lib.counted(self.state.params)})"

    def batch(self, step: int) -> Examples:
        """The examples of a step, counted from 0: a function of the seed and the step.

        They are divided among this process's devices, all of which a jitted step then uses.

        Raises:
          UserError: the step is no whole number, below 0, or of more than 31 bits.
        """
        rows, length = self._run.batches[0](_checked(step))
        columns = in_memory.gather_rows(self._train.columns, rows, length)
        index = np.arange(len(rows), dtype=np.int32)
        columns, index = parallel.divide((columns, index))
        return Examples(columns, self._run.resident["constants"], index, len(rows))

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0; raises `UserError` as `batch` does."""
        return float(self._run.learning_rate(_checked(step)))

    def validate(self, params: Any) -> dict[str, float]:
        """The task's metrics on the validation split, with the same queries every time.

        Raises:
          UserError: `params` is something else than parameters of the model, such as a state,
            or is of other sizes.
        """
        if not self._fit(params):
            kind = type(params).__name__
            raise UserError(f"params, a {kind}, are not those of the model; give state.params")
        return self._run.validation(params)

    def _fit(self, params: Any) -> bool:
        """Whether parameters have the names and the sizes of the model's."""
        own, given = (jax.tree.map(np.shape, one) for one in (self.state.params, params))
        return bool(own == given)

    def save(self, workdir: PathLike, state: TrainState, value: float) -> None:
        """Writes a checkpoint, which `load`, `evaluate` and the commands know.

        The best one by the task's first metric is kept beside the last two, as in training.

        Args:
          workdir: The run's directory, which is made, or holds a run of the same config.
          state: The state to save.
          value: What the first metric of the task is at that state.

        Raises:
          UserError: the directory belongs to another config or has that step or a later one,
            the state is none, that of no step or of another model, or the value is no finite
            number.
        """
        check_path("workdir", workdir)
        check_kind("state", state, TrainState, "what train_step returned, and not its params")
        path, step = pathlib.Path(workdir).expanduser(), int(state.step)
        if not step:
            raise UserError("the state is the one before the first step; take a step first")
        if not self._fit(state.params):
            raise UserError(
                f"state is {state}, of another model; give what this train_step returned"
            )
        is_number = hasattr(value, "__float__") and not np.ndim(value)
        number = float(value) if is_number else math.nan
        if not math.isfinite(number):
            raise UserError(f"value is {shown(value)}; give the metric's, a finite number")
        workdir_lib.check(self.config, self.schema, path)
        own_data.check(self.config, path)
        with directories.Lock(path, "work directory"):
            own_data.note(self.config, path)
            workdir_lib.initialise_workdir(self.config, self.schema, path)
            with Checkpoints(path) as checkpoints:
                last, progress = checkpoints.newest()
                if step <= last:
                    raise UserError(
                        f"{path} has a checkpoint of step {last}, and the state is of step "
                        f"{step}; save into a new directory, or delete this one"
                    )
                progress.note(self.task.metrics[0], number, step)
                checkpoints.save(state_lib.to_saved(state), progress)
            if step >= self.config.train.steps:
                workdir_lib.finish(path, step, progress)

    def restore(self, workdir: PathLike, checkpoint: str | int = "last") -> TrainState:
        """A state that `save` or a training wrote, from which a loop goes on bit for bit.

        Args:
          workdir: The run's directory.
          checkpoint: `last`, `best`, or a step that has a checkpoint.

        Raises:
          UserError: the directory belongs to another config or other data, or holds no such
            checkpoint, or it is damaged.
        """
        check_path("workdir", workdir)
        path = pathlib.Path(workdir).expanduser()
        workdir_lib.check(self.config, self.schema, path)
        own_data.check(self.config, path)
        # The arrays of the first state may have been donated, which leaves their shapes.
        like = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), self.state)
        like = dataclasses.replace(like, step=self.state.step)
        with Checkpoints(path, read_only=True) as checkpoints:
            saved = checkpoints.restore_state(str(checkpoint), state_lib.to_saved(like))
        return state_lib.from_saved(saved, like)


def _checked(step: Any) -> int:
    """A step as a number of Python; raises `UserError` for what is none."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if not 0 <= number <= LARGEST_SIZE:
        raise UserError(
            f"step is {shown(step)}; give a whole number from 0, the first, to {LARGEST_SIZE}"
        )
    return number


def build(config: ml_collections.ConfigDict) -> Experiment:
    """Loads the data of a config and builds model, optimizer and state; compiles little.

    Raises:
      UserError: the config or the data are not what they must be.
    """
    config_lib.check(config)
    if config.train.shard_items:
        raise UserError(
            "train.shard_items is for whole runs; use train, or set it false to take steps"
        )
    schema = prepared.load_schema(config.data.dir, config.data.name)
    train, validation = run_lib.load_splits(config, schema)
    run = run_lib.assemble(config, schema, train, validation)
    state = initialize.initialised(config, run, initialize.read(config, schema))[0]
    return Experiment(config, schema, run.task, state, run.key, run.train_step, run, train)
