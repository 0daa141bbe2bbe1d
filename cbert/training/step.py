"""One training step: a pure function of state, batch and key.

Legend: B examples of this device's part.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from cbert import parallel
from cbert.data.context_replacement import replace_features
from cbert.tasks.base import Examples, Task
from cbert.training.state import TrainState


def make_train_step(
    task: Task,
    optimizer: optax.GradientTransformation,
    skips: bool = False,
    context_replacement: float = 0.0,
) -> Callable[[TrainState, Examples, jax.Array], tuple[TrainState, dict[str, jax.Array]]]:
    """The step, to be mapped over devices.

    Args:
      task: What is trained.
      optimizer: What makes updates of gradients.
      skips: Whether non-finite gradients are skipped.
      context_replacement: Fraction of context features that show the value of another example;
        above 0 the examples' constants hold a `context_sample`.
    """

    def train_step(
        state: TrainState, examples: Examples, key: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Takes one step.

        Args:
          state: The state, the same on every device.
          examples: This device's part of the batch.
          key: The run's key; the step's own keys are made from it and `state.step`.

        Returns:
          The new state, and metrics over the global batch: sums, and for each sum that a mean
          is made of, `<name>_count`.
        """
        keys = jax.random.split(jax.random.fold_in(key, state.step), 3)
        if context_replacement:
            examples = _with_replaced_context(keys[1], examples, context_replacement)
        batch = task.batch(keys[:2], examples)
        # Every device drops other entries.
        rngs = {"dropout": jax.random.fold_in(keys[2], parallel.device_index())}
        gradients, sums = jax.grad(task.loss, has_aux=True)(state.params, batch, rngs)
        gradients, sums = parallel.total((gradients, sums))
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics: dict[str, jax.Array] = {}
        for name, (total, count) in sums.items():
            metrics |= {name: total, f"{name}_count": count}
        metrics["gradient_norm"] = optax.tree.norm(gradients)
        if skips:
            metrics = _without_nonfinite(metrics)
        return TrainState(state.step + 1, params, opt_state), metrics

    return train_step


def _with_replaced_context(key: jax.Array, examples: Examples, rate: float) -> Examples:
    """The examples with some features replaced; their dropping has the key itself."""
    context = replace_features(
        jax.random.fold_in(key, 1),
        examples.columns["context"],
        examples.constants["context_sample"],
        examples.index,
        examples.batch_size,
        rate,
    )
    return dataclasses.replace(examples, columns={**examples.columns, "context": context})


def _without_nonfinite(metrics: dict[str, jax.Array]) -> dict[str, Any]:
    """Sets all metrics to zero if the gradient is not finite, and adds `skipped`, 1 or 0."""
    good = jnp.isfinite(metrics["gradient_norm"])
    kept = {name: jnp.where(good, value, 0) for name, value in metrics.items()}
    return {**kept, "skipped": 1.0 - good}
