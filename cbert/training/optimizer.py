"""AdamW with warm-up, decay, clipping, and weight decay on kernels alone."""

from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax

SCHEDULES = ("cosine", "linear", "constant")
DECAYED, REST = "decayed", "rest"
# Leaves of more entries stay on their own: to pack one would be to copy it.
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
    rate: optax.Schedule, weight_decay: float, clip_norm: float, b1: float, b2: float
) -> optax.GradientTransformation:
    """AdamW over packed parameters; `clip_norm` of 0 turns clipping off."""
    adamw = optax.adamw(rate, b1, b2, weight_decay=weight_decay, mask=_is_decayed)
    return optax.chain(optax.clip_by_global_norm(clip_norm), adamw) if clip_norm else adamw


def skip_nonfinite(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Leaves parameters and optimizer as they are where a gradient is not finite."""
    return optax.apply_if_finite(optimizer, max_consecutive_errors=2**31 - 1)


def decayed(path: tuple[str, ...]) -> bool:
    """True for what weight decay shrinks: no bias, no LayerNorm, no embedding."""
    return path[-1] == "kernel" and path[0] != "context_encoder"


def pack(tree: Any) -> dict[str, jax.Array]:
    """Parameters as a few long vectors: one sum over devices, one norm and one update each.

    As they are, the hundred small leaves cost more to compile than the model does.
    """
    flat = flax.traverse_util.flatten_dict(tree)
    return {
        name: flat[paths[0]]
        if len(paths) == 1
        else jnp.concatenate([flat[path].reshape(-1) for path in paths])
        for name, paths in _groups(flat).items()
    }


def unpack(vectors: dict[str, jax.Array], like: Any) -> Any:
    """The inverse of `pack`, for a tree of the shapes of `like`."""
    flat = flax.traverse_util.flatten_dict(like)
    for name, paths in _groups(flat).items():
        vector = vectors[name].reshape(-1)
        for path in paths:
            size, shape = flat[path].size, flat[path].shape
            flat[path], vector = vector[:size].reshape(shape), vector[size:]
    return flax.traverse_util.unflatten_dict(flat)


def _groups(flat: dict[tuple[str, ...], Any]) -> dict[str, list[tuple[str, ...]]]:
    """Name of a vector to the paths of its leaves; large leaves are vectors of their own."""
    groups = {}
    for path, leaf in sorted(flat.items()):
        name = DECAYED if decayed(path) else REST
        if leaf.size > LARGE:
            name = ".".join([name, *path])
        groups.setdefault(name, []).append(path)
    return groups


def _is_decayed(packed: dict[str, jax.Array]) -> dict[str, bool]:
    return {name: name.split(".")[0] == DECAYED for name in packed}
