"""Parameters as a few long vectors, over which an optimizer is fast.

The parameters that weight decay shrinks are apart from those that it does not.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct, traverse_util

from cbert import parallel
from cbert.model.parameter_tree import Path

DECAYED, REST = "decayed", "rest"
# Leaves of more entries stay on their own, because packing copies.
LARGE = 2**18
# One program: leaf by leaf, every shape that is new would be one of its own.
_concatenate = jax.jit(functools.partial(jnp.concatenate, axis=None), inline=True)


def is_decayed(path: Path) -> bool:
    """True for the parameters that weight decay shrinks: no bias, LayerNorm or embedding."""
    return path[-1] == "kernel" and path[0] != "context_encoder"


@struct.dataclass
class Packed:
    """A tree of parameters as a few long vectors, by name."""

    vectors: dict[str, Any]


def packed_decay(params: Packed) -> Packed:
    """Which vectors weight decay shrinks, for `optax.adamw`."""
    return Packed({name: name.split(".")[0] == DECAYED for name in params.vectors})


def packed(
    optimizer: optax.GradientTransformation, waits: bool
) -> optax.GradientTransformation:
    """The optimizer over packed parameters: one norm and one update for a hundred leaves.

    Leaf by leaf, they cost more to compile than the model does. With `waits`, no update begins
    before all gradients are there.
    """

    def init(params: Any) -> Any:
        return optimizer.init(pack(params))

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        vectors = pack(gradients)
        if waits:
            vectors = jax.lax.optimization_barrier(vectors)
        updates, state = optimizer.update(vectors, state, pack(params))
        return unpack(updates, params), state

    return optax.GradientTransformation(init, update)


def pack(tree: Any, concatenate: Callable = _concatenate) -> Packed:
    """Parameters as a few long vectors; a large leaf stays on its own."""
    flat = traverse_util.flatten_dict(tree)
    return Packed(
        {
            name: flat[paths[0]]
            if len(paths) == 1
            else concatenate([flat[path] for path in paths])
            for name, paths in _groups(flat).items()
        }
    )


def unpack(packed: Packed, like: Any) -> Any:
    """The inverse of `pack`, for a tree of the shapes of `like`."""
    flat = traverse_util.flatten_dict(like)
    for name, paths in _groups(flat).items():
        vector = packed.vectors[name]
        if len(paths) == 1:
            flat[paths[0]] = vector
            continue
        parts = _parts(vector, [flat[path].size for path in paths])
        for path, part in zip(paths, parts, strict=True):
            flat[path] = part.reshape(flat[path].shape)
    return traverse_util.unflatten_dict(flat)


def _parts(vector: Any, sizes: list[int]) -> list[Any]:
    """The parts of these sizes, one after the other."""
    starts = [0, *np.cumsum(sizes)[:-1].tolist()]
    if isinstance(vector, np.ndarray) or parallel.platform() != "gpu":
        return [vector[start : start + n] for start, n in zip(starts, sizes, strict=True)]
    # Without the barrier every part would be made from the parameters of all, which could not
    # be replaced before they are copied.
    vector = jax.lax.optimization_barrier(vector)
    # XLA makes one program for many parts, unless it knows that no two of them overlap.
    unknown = [jax.lax.optimization_barrier(jnp.int32(start)) for start in starts]
    return [
        jax.lax.dynamic_slice(vector, (start,), (n,))
        for start, n in zip(unknown, sizes, strict=True)
    ]


def per_leaf(opt_state: Any, params: Any) -> Any:
    """A copy of an optimizer's state with a leaf for each parameter, as checkpoints hold it.

    It is made on the host, because every slice would be a program of its own on the device.
    """

    def unpacked(node: Any) -> Any:
        if not isinstance(node, Packed):
            return np.array(node)
        return jax.tree.map(np.array, unpack(node, params))

    return jax.tree.map(unpacked, jax.device_get(opt_state), is_leaf=_is_packed)


def as_packed(opt_state: Any, like: Any) -> Any:
    """The inverse of `per_leaf`: packed wherever the state `like` is, on the host."""

    flat = functools.partial(np.concatenate, axis=None)

    def packed_like(node: Any, own: Any) -> Any:
        return pack(own, flat) if isinstance(node, Packed) else own

    return jax.tree.map(packed_like, like, jax.device_get(opt_state), is_leaf=_is_packed)


def is_packed(opt_state: Any) -> bool:
    """Whether an optimizer's state is over packed parameters."""
    return any(map(_is_packed, jax.tree.leaves(opt_state, is_leaf=_is_packed)))


def _is_packed(node: Any) -> bool:
    return isinstance(node, Packed)


def _groups(flat: dict[Path, Any]) -> dict[str, list[Path]]:
    """The paths of the leaves of each vector, by the vector's name."""
    groups: dict[str, list[Path]] = {}
    for path, leaf in sorted(flat.items()):
        name = DECAYED if is_decayed(path) else REST
        if leaf.size > LARGE:
            name = ".".join([name, *path])
        groups.setdefault(name, []).append(path)
    return groups
