"""The training state, whole and sufficient, and the progress of a run."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from cbert.errors import UserError
from cbert.model.placement import Placement
from cbert.tasks.metric import Metric
from cbert.training import packing


@struct.dataclass
class TrainState:
    """Everything that a step changes.

    Attributes:
      step: `int32 []`, steps taken.
      params: The model's parameters, float32.
      opt_state: The optimizer's.
    """

    step: jax.Array
    params: Any
    opt_state: Any

    def __repr__(self) -> str:
        """A line, because the arrays would fill pages of a notebook."""
        return f"TrainState(step {self.step}, {counted(self.params)})"


def counted(params: Any) -> str:
    """How many parameters there are, in words."""
    leaves = jax.tree.leaves(params)
    numbers = sum(math.prod(leaf.shape) for leaf in leaves)
    return f"{numbers:,} parameters in {len(leaves)} arrays"


def create(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first step."""
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


WHOLE = Placement()


def to_saved(state: TrainState, placement: Placement = WHOLE) -> TrainState:
    """The state as a checkpoint holds it, the same however many devices there are.

    The optimizer's has a leaf for each parameter, and nothing is split.
    """
    opt_state = packing.per_leaf(state.opt_state, state.params)
    return TrainState(state.step, placement.to_host(state.params), placement.to_host(opt_state))


def from_saved(saved: TrainState, like: TrainState, placement: Placement = WHOLE) -> TrainState:
    """The inverse of `to_saved`, on the devices; packed where the state `like` is."""
    opt_state = packing.as_packed(saved.opt_state, like.opt_state)
    return TrainState(
        saved.step, placement.to_devices(saved.params), placement.to_devices(opt_state)
    )


@dataclasses.dataclass
class Progress:
    """The progress of a run, which every checkpoint holds beside the state.

    Attributes:
      best: The best value so far of the task's first metric on the validation split.
      best_step: The step that it was measured at, 0 for none.
      waited: Evaluations since then.
      sums: Metrics summed since the last row that was written.
    """

    best: float = float("inf")
    best_step: int = 0
    waited: int = 0
    sums: dict[str, float] = dataclasses.field(default_factory=dict)

    def note(self, metric: Metric, value: float, step: int) -> bool:
        """Notes the metric's value at a step; returns whether it is the best so far."""
        improved = not self.best_step or metric.improves(value, self.best)
        if improved:
            self.best, self.best_step, self.waited = value, step, 0
        else:
            self.waited += 1
        return improved

    @classmethod
    def from_dict(cls, raw: Any) -> "Progress":
        """Reads parsed JSON; raises `UserError` where it is not a run's progress."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(raw, dict) or raw.keys() != names:
            raise UserError("its progress is another version's; train again")
        known = cls(**raw)
        counts = (known.best_step, known.waited)
        if not all(type(count) is int and count >= 0 for count in counts):
            raise UserError("its progress has a count that is not a whole number")
        sums = known.sums.values() if isinstance(known.sums, dict) else [None]
        if not all(type(number) in (int, float) for number in (known.best, *sums)):
            raise UserError("its progress has a value that is not a number")
        return known
