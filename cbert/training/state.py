"""The training state: whole and sufficient."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from cbert.training.optimizer import pack


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


def create(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first step; the optimizer sees packed parameters."""
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(pack(params)))
