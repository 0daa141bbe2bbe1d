"""AdamW with warm-up, decay, clipping, and weight decay on kernels alone."""

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct, traverse_util

# Gradients to their norm.
Norm = Callable[[Any], jax.Array]

SCHEDULES = ("cosine", "linear", "constant")
CONTEXT_PARTS = ("context_encoder", "conditioning")
DECAYED, REST = "decayed", "rest"
# Leaves of more entries stay on their own, because packing copies.
LARGE = 2**18


def learning_rate(schedule: str, peak: float, warmup_steps: int, steps: int) -> optax.Schedule:
    """Linear warm-up to the peak, then decay to zero at the last step.

    A run shorter than twice its warm-up warms up for half of its steps.
    """
    warmup_steps = min(warmup_steps, steps // 2)
    rest = max(steps - warmup_steps, 1)
    decay = {
        "cosine": optax.cosine_decay_schedule(peak, rest),
        "linear": optax.linear_schedule(peak, 0.0, rest),
        "constant": optax.constant_schedule(peak),
    }[schedule]
    if not warmup_steps:
        return decay
    # The first step already moves: its rate is peak / warmup_steps.
    warmup = optax.linear_schedule(peak / warmup_steps, peak, max(warmup_steps - 1, 1))
    return optax.join_schedules([warmup, decay], [warmup_steps])


def make_optimizer(
    rate: optax.Schedule,
    weight_decay: float,
    clip_norm: float,
    b1: float,
    b2: float,
    packs: bool = True,
    norm: Norm | None = None,
) -> optax.GradientTransformation:
    """AdamW; `clip_norm` of 0 turns clipping off.

    `packs` is the fast form, which works on a few long vectors; the updates are the same.
    `norm` is that of gradients of which a device has only a part; they are not packed.
    """
    mask = _packed_decay if packs else _leaf_decay
    optimizer = optax.adamw(rate, b1, b2, weight_decay=weight_decay, mask=mask)
    if clip_norm:
        if packs or norm:
            clip = clip_by_factor(clip_norm, norm or optax.tree.norm)
        else:
            clip = optax.clip_by_global_norm(clip_norm)
        optimizer = optax.chain(clip, optimizer)
    return packed(optimizer) if packs else optimizer


def clip_by_factor(
    clip_norm: float, norm: Norm = optax.tree.norm
) -> optax.GradientTransformation:
    """`optax.clip_by_global_norm` with one division instead of one an entry.

    XLA computes a product twice where two loops need it, but stores a quotient.
    """

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        factor = clip_norm / jnp.maximum(norm(gradients), clip_norm)
        return jax.tree.map(lambda leaf: leaf * factor, gradients), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def with_rates(
    optimizer: optax.GradientTransformation, factor: Callable[[tuple[str, ...]], float]
) -> optax.GradientTransformation:
    """Multiplies the learning rate of each parameter by a factor of its path."""

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        flat = traverse_util.flatten_dict(updates)
        scaled = {path: factor(path) * leaf for path, leaf in flat.items()}
        return traverse_util.unflatten_dict(scaled), state

    return optax.GradientTransformation(optimizer.init, update)


def layer_factor(path: tuple[str, ...], layers: int, decay: float, context: float) -> float:
    """The factor of a parameter's learning rate.

    It is 1 for the head, `decay` for the last block, `decay**layers` for the first one,
    `decay**(layers + 1)` for the embedding, and `context` for the context's embeddings and the
    conditioning method.
    """
    part = path[0]
    if part in CONTEXT_PARTS:
        return context
    if part == "embedding":
        return decay ** (layers + 1)
    if part.startswith("blocks_"):
        return decay ** (layers - int(part.removeprefix("blocks_")))
    return 1.0


def freeze(
    optimizer: optax.GradientTransformation, parts: Collection[str]
) -> optax.GradientTransformation:
    """Leaves the named parts of the model as they are; they add nothing to the clipped norm.

    Args:
      optimizer: The optimizer of the rest.
      parts: What the paths of their parameters begin with, see `is_part`.
    """

    def is_frozen(params: Any) -> Any:
        flat = traverse_util.flatten_dict(params)
        frozen = {path: any(is_part(path, part) for part in parts) for path in flat}
        return traverse_util.unflatten_dict(frozen)

    without = optax.masked(optax.set_to_zero(), is_frozen)
    return optax.chain(without, optimizer, without)


def is_part(path: tuple[str, ...], part: str) -> bool:
    """Whether a parameter belongs to a part, such as `embedding` or `embedding/items`."""
    names = tuple(part.split("/"))
    return path[: len(names)] == names


def skip_nonfinite(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Leaves parameters and optimizer as they are where a gradient is not finite."""
    return optax.apply_if_finite(optimizer, max_consecutive_errors=2**31 - 1)


def is_decayed(path: tuple[str, ...]) -> bool:
    """True for the parameters that weight decay shrinks: no bias, LayerNorm or embedding."""
    return path[-1] == "kernel" and path[0] != "context_encoder"


def _leaf_decay(params: Any) -> Any:
    flat = traverse_util.flatten_dict(params)
    return traverse_util.unflatten_dict({path: is_decayed(path) for path in flat})


def _packed_decay(params: "Packed") -> "Packed":
    return Packed({name: name.split(".")[0] == DECAYED for name in params.vectors})


@struct.dataclass
class Packed:
    """A tree of parameters as a few long vectors, by name."""

    vectors: dict[str, Any]


def packed(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimizer over packed parameters: one norm and one update for a hundred leaves.

    Leaf by leaf, they cost more to compile than the model does.
    """

    def init(params: Any) -> Any:
        return optimizer.init(pack(params))

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(pack(gradients), state, pack(params))
        return unpack(updates, params), state

    return optax.GradientTransformation(init, update)


def pack(tree: Any, concatenate: Callable = jnp.concatenate) -> Packed:
    """Parameters as a few long vectors; a large leaf stays on its own."""
    flat = traverse_util.flatten_dict(tree)
    return Packed(
        {
            name: flat[paths[0]]
            if len(paths) == 1
            else concatenate([flat[path].reshape(-1) for path in paths])
            for name, paths in _groups(flat).items()
        }
    )


def unpack(packed: Packed, like: Any) -> Any:
    """The inverse of `pack`, for a tree of the shapes of `like`."""
    flat = traverse_util.flatten_dict(like)
    for name, paths in _groups(flat).items():
        vector = packed.vectors[name].reshape(-1)
        for path in paths:
            size, shape = flat[path].size, flat[path].shape
            flat[path], vector = vector[:size].reshape(shape), vector[size:]
    return traverse_util.unflatten_dict(flat)


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

    def packed_like(node: Any, own: Any) -> Any:
        return pack(own, np.concatenate) if isinstance(node, Packed) else own

    return jax.tree.map(packed_like, like, jax.device_get(opt_state), is_leaf=_is_packed)


def _is_packed(node: Any) -> bool:
    return isinstance(node, Packed)


def _groups(flat: dict[tuple[str, ...], Any]) -> dict[str, list[tuple[str, ...]]]:
    """The paths of the leaves of each vector, by the vector's name."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for path, leaf in sorted(flat.items()):
        name = DECAYED if is_decayed(path) else REST
        if leaf.size > LARGE:
            name = ".".join([name, *path])
        groups.setdefault(name, []).append(path)
    return groups
