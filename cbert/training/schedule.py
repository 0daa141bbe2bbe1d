"""The learning rate as a function of the step."""

import functools

import jax
import jax.numpy as jnp
import ml_collections
from flax import struct

SCHEDULES = ("cosine", "linear", "constant")


@struct.dataclass
class Schedule:
    """Linear warm-up to the peak, then decay to the zero that a step after the last would have.

    Its numbers are arrays that the step is given, so that runs with other learning rates and
    other numbers of steps take the same compiled programs. A run shorter than twice its warm-up
    warms up for half of its steps.

    Attributes:
      name: How it decays, one of `SCHEDULES`.
      peak: `float32 []`, the highest learning rate.
      warmup_steps: `int32 []`, the steps up to it.
      steps: `int32 []`, all steps of the run.
    """

    name: str = struct.field(pytree_node=False)
    peak: jax.Array | float
    warmup_steps: jax.Array | int
    steps: jax.Array | int

    @functools.partial(jax.jit, inline=True)
    def __call__(self, step: jax.Array | int) -> jax.Array:
        """The learning rate of a step, `float32 []`; steps count from 0."""
        warmup = jnp.minimum(self.warmup_steps, self.steps // 2)
        # The first step already moves: its rate is peak / warmup_steps.
        rise = (step + 1) / jnp.maximum(warmup, 1)
        progress = jnp.clip((step - warmup) / jnp.maximum(self.steps - warmup, 1), 0.0, 1.0)
        fall = {
            "cosine": (1 + jnp.cos(jnp.pi * progress)) / 2,
            "linear": 1 - progress,
            "constant": jnp.ones_like(progress),
        }[self.name]
        return self.peak * jnp.where(step < warmup, rise, fall)


def build(config: ml_collections.ConfigDict) -> Schedule:
    """The schedule of a checked config's run."""
    chosen = config.optimizer
    return Schedule(
        chosen.schedule,
        jnp.float32(chosen.learning_rate),
        jnp.int32(chosen.warmup_steps),
        jnp.int32(config.train.steps),
    )
