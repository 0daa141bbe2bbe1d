"""The devices that JAX has, and programs that are mapped over them.

The state is not stacked: it is one logical value that every device holds (`in_axes` None),
and the step's sums over devices make every copy the same. Where several processes train
together, each has its own copies on its own devices, and takes its part of every batch.

Legend: B examples of a batch, N rows that are sent to each device.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "devices"


def device_count() -> int:
    """The number of devices of all processes."""
    return jax.device_count()


def map_train_step(
    step: Callable, make_examples: Callable, over_seeds: bool = False, axes: Any = None
) -> Callable:
    """Maps a training step over the devices, and scans it over the steps of one dispatch.

    Args:
      step: `step(state, examples, key)` returns the next state and metrics.
      make_examples: `make_examples(resident, columns, rows, indices, length)` makes the
        examples of one step of one device from its rows, `int32 [B / devices]`.
      over_seeds: Whether several seeds train in one program. State, key and results then have a
        leading axis over seeds, and rows have one after their axis over steps. Each seed's
        numbers are those of its own run.
      axes: The axis over devices of each array of the state, None where every device has the
        same; None for a state that every device has whole.

    Returns:
      A function of the state, which is donated; of `resident`, which every device holds; of
      what is fed, columns `[devices, N, ...]` and rows `int32 [devices, steps, B / devices]`;
      of indices `int32 [devices, B / devices]`; of the key; and of the padded length, which is
      static. It returns the state and the metrics, on which the devices agree; metrics have a
      leading axis over steps.
    """

    def take_steps(
        state: Any, resident: Any, fed: Any, indices: jax.Array, key: jax.Array, length: int
    ) -> tuple[Any, Any]:
        columns, rows = fed

        def of_one_seed(state: Any, rows: jax.Array, key: jax.Array) -> tuple[Any, Any]:
            return step(state, make_examples(resident, columns, rows, indices, length), key)

        take_step = jax.vmap(of_one_seed) if over_seeds else of_one_seed
        if len(rows) > 1:
            return lax.scan(lambda state, rows: take_step(state, rows, key), state, rows)
        state, metrics = take_step(state, rows[0], key)
        return state, jax.tree.map(lambda value: value[None], metrics)

    return jax.pmap(
        take_steps,
        axis_name=AXIS,
        in_axes=(axes, None, 0, 0, None),
        out_axes=(axes, None),
        static_broadcasted_argnums=5,
        donate_argnums=0,
    )


def stack(trees: list[Any]) -> Any:
    """One tree with a leading axis over the given ones, on every device."""
    return replicate(_stacked(trees))


def unstack(tree: Any, count: int) -> Iterator[Any]:
    """The inverse of `stack`, one tree after the other."""
    for n in range(count):
        yield replicate(_of_one(tree, n))


@jax.jit
def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@jax.jit
def _of_one(tree: Any, n: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[n], tree)


def map_queries(predict: Callable, axes: Any = None) -> Callable:
    """`predict(params, data, rows, query, length)`; rows and query come from `split_local`.

    Every process predicts all queries on its own devices, so that nothing is sent around.
    `axes` has the axis over devices of each parameter, as in `map_train_step`.
    """
    return jax.pmap(
        predict,
        axis_name=AXIS,
        in_axes=(axes, None, 0, 0),
        static_broadcasted_argnums=4,
        devices=jax.local_devices(),
    )


def everywhere() -> NamedSharding:
    """A copy on every device of this process, the way a mapped step returns it."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), (AXIS,)), PartitionSpec())


def divided() -> NamedSharding:
    """The first axis divided among the devices of this process."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), (AXIS,)), PartitionSpec(AXIS))


def replicate(tree: Any) -> Any:
    """Places a tree on every device."""
    return jax.device_put(tree, everywhere())


def divide(tree: Any) -> Any:
    """Places a tree whose leaves have one leading axis, divided among this process's devices.

    A function that `jax.jit` compiles then computes on all of them.
    """
    return jax.device_put(tree, divided())


def replicated(shapes: Any) -> Any:
    """Shapes and dtypes of a tree that is placed on every device, to restore into."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere()),
        shapes,
    )


def split(array: np.ndarray, axis: int = 0) -> np.ndarray:
    """Splits an axis over all devices: `[..., B, ...]` to `[devices, ..., B / devices, ...]`.

    The result holds the parts of this process's devices alone.
    """
    parts = np.split(array, device_count(), axis)
    own_process = jax.process_index()
    own = [n for n, device in enumerate(jax.devices()) if device.process_index == own_process]
    return np.stack([parts[n] for n in own])


def first_device() -> jax.Device:
    """The device on which predictors and the benchmark run."""
    return jax.local_devices()[0]


def host() -> jax.Device | None:
    """The CPU beside the accelerators; None where JAX_PLATFORMS leaves it out."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def local_device_count() -> int:
    """The number of devices of this process."""
    return jax.local_device_count()


def device_memory() -> int | None:
    """Bytes that programs may use on one device of this process; None where it does not say."""
    return (first_device().memory_stats() or {}).get("bytes_limit")


def split_local(array: np.ndarray) -> np.ndarray:
    """Splits the first axis over the devices of this process."""
    return np.stack(np.split(array, local_device_count()))


def join_local(parts: jax.Array) -> np.ndarray:
    """What `split_local` split, `[devices, B / devices, ...]`, as `[B, ...]` on the host."""
    fetched = np.asarray(parts)
    return fetched.reshape(-1, *fetched.shape[2:])


def divisible(batch_size: int) -> int:
    """The least size from that on of which this process's devices have equal parts."""
    devices = local_device_count()
    return -(-batch_size // devices) * devices


def platform() -> str:
    """The kind of the devices: `cpu`, `gpu` or `tpu`."""
    return jax.default_backend()


def has_bfloat16_units() -> bool:
    """Whether the devices are NVIDIA's GPUs with units for products of bfloat16."""
    major = str(getattr(first_device(), "compute_capability", "")).partition(".")[0]
    return major.isdecimal() and int(major) >= 8
