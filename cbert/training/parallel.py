"""How many devices there are: the only file that knows.

The state is not stacked: it is one logical value that every device holds (`in_axes` None),
and the step's sums over devices make every copy the same.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "devices"


def device_count() -> int:
    return jax.local_device_count()


def device_index() -> jax.Array:
    """Inside a mapped function: which device this is."""
    return lax.axis_index(AXIS)


def total(tree: Any) -> Any:
    """Inside a mapped function: the sum over all devices; one device need not copy."""
    return lax.psum(tree, AXIS) if device_count() > 1 else tree


def map_train_step(step: Callable) -> Callable:
    """`step(state, data, rows, places, key, length)` on all devices, state donated.

    `rows` is `[devices, steps, B / devices]`, `places` `[devices, B / devices]`, and `length`
    static. The steps are taken in one dispatch. The results are one copy, which the devices
    agree on; metrics have a leading axis over steps.
    """

    def take(state, data, rows, places, key, length):
        def one(state: Any, rows: jax.Array) -> tuple[Any, Any]:
            return step(state, data, rows, places, key, length)

        if len(rows) > 1:
            return lax.scan(one, state, rows)
        state, metrics = one(state, rows[0])
        return state, jax.tree.map(lambda value: value[None], metrics)

    return jax.pmap(
        take,
        axis_name=AXIS,
        in_axes=(None, None, 0, 0, None),
        out_axes=None,
        static_broadcasted_argnums=5,
        donate_argnums=0,
    )


def over_seeds(step: Callable) -> Callable:
    """The step of several seeds in one program, to be mapped over devices.

    State, key and results have a leading seed axis, a step's `rows` are `[seeds, B]`, and the
    data and the padded length are the same for all. Each seed's numbers are its own run's.
    """

    def step_all(state, data, rows, places, key, length):
        def step_one(state: Any, rows: jax.Array, key: jax.Array) -> Any:
            return step(state, data, rows, places, key, length)

        return jax.vmap(step_one)(state, rows, key)

    return step_all


def stack(trees: list[Any]) -> Any:
    """One tree with a leading axis over the given ones, on every device."""
    return replicate(jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees))


def map_questions(ask: Callable) -> Callable:
    """`ask(params, data, rows, hidden, length)`; rows and hidden are split over devices."""
    return jax.pmap(
        ask, axis_name=AXIS, in_axes=(None, None, 0, 0), static_broadcasted_argnums=4
    )


def _everywhere() -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.local_devices()), (AXIS,)), PartitionSpec())


def replicate(tree: Any) -> Any:
    """Places a tree on every device, the way a mapped step returns it."""
    return jax.device_put(tree, _everywhere())


def replicated(shapes: Any) -> Any:
    """Shapes and dtypes of a tree that is placed on every device, to restore into."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_everywhere()),
        shapes,
    )


def split(array: np.ndarray, axis: int = 0) -> np.ndarray:
    """Splits an axis over devices: `[..., B, ...]` to `[devices, ..., B / devices, ...]`."""
    return np.stack(np.split(array, device_count(), axis))
