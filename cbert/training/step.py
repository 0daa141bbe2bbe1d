"""One training step: a pure function of state, batch and key.

Legend: B examples of this device's part.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from cbert import collectives, parallel
from cbert.data.context_replacement import replace_features
from cbert.data.in_memory import gather_rows
from cbert.model import parameter_tree
from cbert.model import placement as placement_lib
from cbert.tasks.base import Examples, Task
from cbert.training import state as state_lib
from cbert.training.packing import is_packed, pack
from cbert.training.state import TrainState


def make_train_step(
    task: Task,
    optimizer: optax.GradientTransformation,
    skips: bool = False,
    context_replacement: float = 0.0,
    accumulate: int = 1,
) -> Callable[[TrainState, Examples, jax.Array], tuple[TrainState, dict[str, jax.Array]]]:
    """The step, to be mapped over devices.

    Args:
      task: What is trained.
      optimizer: Its optimizer, at a learning rate of 1; the examples' constants hold the
        `learning_rate`, a `Schedule`.
      skips: Whether gradients that are not finite are skipped.
      context_replacement: Fraction of context features that show the value of another example;
        above 0 the constants hold a `context_sample`.
      accumulate: The micro-batches of a device's part, whose gradients are summed.
    """
    placement = placement_lib.choose(task.model)

    def train_step(
        state: TrainState, examples: Examples, key: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Takes one step.

        Args:
          state: The state, the same on every device but for what is split.
          examples: This device's part of the batch.
          key: The run's key; the step's own keys are made from it and `state.step`.

        Returns:
          The new state, and metrics over the global batch: sums, and for each sum that a mean
          is made of, `<name>_count`.
        """
        keys = jax.random.split(jax.random.fold_in(key, state.step), 3)
        if context_replacement:
            examples = _with_replaced_context(keys[1], examples, context_replacement)

        def differentiate(micro_batch: Examples, number: jax.Array | int) -> tuple[Any, Any]:
            batch = task.batch(keys[:2], micro_batch)
            # Every micro-batch of every device drops other entries.
            part = collectives.device_index() * accumulate + number
            rngs = {"dropout": jax.random.fold_in(keys[2], part)}
            return jax.grad(task.loss, has_aux=True)(state.params, batch, rngs)

        gradients, sums = placement.sum_over_devices(
            _accumulated(differentiate, examples, accumulate)
        )
        # On a GPU a few vectors are faster than a hundred leaves.
        packs = parallel.platform() == "gpu" and is_packed(state.opt_state)
        metrics = _as_metrics(sums, placement.norm(pack(gradients) if packs else gradients))
        if skips:  # All devices skip, or none.
            gradients, metrics = _skipped(gradients, metrics)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        rate = examples.constants["learning_rate"](state.step)
        params = optax.apply_updates(state.params, optax.tree.scale(rate, updates))
        return TrainState(state.step + 1, params, opt_state), metrics

    return train_step


# Runs of one process that differ in seed, rate or length alone compile their step once.
@functools.lru_cache(maxsize=8)
def shared_steps(
    task: Task,
    optimizer: optax.GradientTransformation,
    options: tuple[bool, float, int],
    batch_size: int,
    over_seeds: bool,
    platform: str,
) -> tuple[Callable, Callable]:
    """The step of one seed, and the same mapped over devices and seeds.

    `options` are the last of `make_train_step`; the forms of a model's layers are chosen by
    `platform`, which is that of the devices.
    """
    train_step = make_train_step(task, optimizer, *options)

    def make_examples(
        resident: Any, fed: Any, rows: jax.Array, indices: jax.Array, length: int
    ) -> Examples:
        # A split in memory is on the devices, and none of its columns are fed.
        columns = gather_rows(fed or resident["columns"], rows, length)
        return Examples(columns, resident["constants"], indices, batch_size)

    placement, axes = placement_lib.choose(task.model), None
    if placement.shards > 1:
        create = functools.partial(state_lib.create, optimizer=optimizer)
        axes = placement.axes(jax.eval_shape(create, parameter_tree.shapes(task.model)))
    return train_step, parallel.map_train_step(train_step, make_examples, over_seeds, axes)


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


def _accumulated(
    differentiate: Callable[[Examples, jax.Array | int], Any], examples: Examples, count: int
) -> Any:
    """The sum of the results on `count` micro-batches, one after the other.

    What a task draws for an example depends on the example's index in the global batch, and its
    loss is divided by constants, so the sum is what the undivided examples give.
    """
    if count == 1:
        return differentiate(examples, 0)
    columns, index = jax.tree.map(
        lambda column: column.reshape(count, -1, *column.shape[1:]),
        (examples.columns, examples.index),
    )

    def of_micro_batch(number: jax.Array | int, columns: Any, index: jax.Array) -> Any:
        part = dataclasses.replace(examples, columns=columns, index=index)
        return differentiate(part, number)

    def add(total: Any, micro_batch: tuple) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_micro_batch(*micro_batch)), None

    micro_batches = (jnp.arange(count), columns, index)
    shapes = jax.eval_shape(of_micro_batch, *jax.tree.map(lambda x: x[0], micro_batches))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.scan(add, zeros, micro_batches)[0]


def _as_metrics(
    sums: dict[str, tuple[jax.Array, jax.Array]], norm: jax.Array
) -> dict[str, jax.Array]:
    """Sums and, as `<name>_count`, what divides them for a mean; the norm counts once."""
    metrics: dict[str, jax.Array] = {}
    for name, (total, count) in {**sums, "gradient_norm": (norm, jnp.ones(()))}.items():
        metrics |= {name: total, f"{name}_count": count}
    return metrics


def _skipped(gradients: Any, metrics: dict[str, jax.Array]) -> tuple[Any, dict[str, jax.Array]]:
    """Where a sum or the norm is not finite: NaN, which the optimizer skips, and no metrics.

    Adds the metric `skipped`, 1 or 0.
    """
    good = jnp.isfinite(jnp.stack(jax.tree.leaves(metrics))).all()
    gradients = jax.tree.map(lambda leaf: jnp.where(good, leaf, jnp.nan), gradients)
    kept = {name: jnp.where(good, value, 0) for name, value in metrics.items()}
    return gradients, {**kept, "skipped": 1.0 - good}
