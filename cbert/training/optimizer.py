"""AdamW with warm-up, decay, clipping, and weight decay on kernels alone."""

import functools
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import optax
from flax import traverse_util

from cbert.errors import UserError
from cbert.model import parameter_tree, placement
from cbert.model.layers import uses_fast_kernels
from cbert.model.parameter_tree import BLOCK, CONTEXT_PARTS, Path
from cbert.training.config_sections import SKIP
from cbert.training.packing import is_decayed, packed, packed_decay

# Gradients to their norm.
Norm = Callable[[Any], jax.Array]


def build(config: ml_collections.ConfigDict, model: Any) -> optax.GradientTransformation:
    """The optimizer of a checked config's run, at a learning rate of 1; see `schedule`.

    Raises:
      UserError: `train.frozen` names no part of the model, or every one.
    """
    chosen = config.optimizer
    packs = uses_fast_kernels(model.encoder.config) and placement.choose(model).shards == 1
    return _built(
        model,
        packs,
        (chosen.weight_decay, chosen.clip_norm, chosen.b1, chosen.b2),
        (chosen.layer_decay, chosen.context_rate),
        tuple(frozen_parts(config, model)) if config.train.frozen else (),
        config.train.on_nonfinite == SKIP,
    )


# Equal arguments give the same object, so that runs in one process share their step.
@functools.lru_cache(maxsize=8)
def _built(
    model: Any,
    packs: bool,
    adam: tuple[float, float, float, float],
    factors: tuple[float, float],
    frozen: tuple[str, ...],
    skips: bool,
) -> optax.GradientTransformation:
    """The optimizer of `make_optimizer`'s first four arguments and of `layer_factor`'s last."""
    where, layers = placement.choose(model), model.encoder.config.layers
    optimizer = make_optimizer(*adam, packs, where.norm if where.shards > 1 else None)
    if factors != (1.0, 1.0):
        decay, context = factors
        factor = functools.partial(layer_factor, layers=layers, decay=decay, context=context)
        optimizer = with_rates(optimizer, factor)
    if frozen:
        optimizer = freeze(optimizer, frozen)
    if skips:
        optimizer = optax.apply_if_finite(optimizer, max_consecutive_errors=2**31 - 1)
    return optimizer


def frozen_parts(config: ml_collections.ConfigDict, model: Any) -> list[str]:
    """The parts that `train.frozen` names; raises `UserError` for one that does not exist."""
    paths = list(parameter_tree.parameter_sizes(model))
    parts = [part.strip() for part in config.train.frozen.split(",")]
    for part in parts:
        if not any(is_part(path, part) for path in paths):
            whole = part.partition("/")[0]
            inside = {"/".join(path[:2]) for path in paths if path[0] == whole}
            names = sorted(inside or {path[0] for path in paths})
            raise UserError(
                f"train.frozen names {part[:80]!r}; the model's parts are {', '.join(names)}"
            )
    if all(any(is_part(path, part) for part in parts) for path in paths):
        raise UserError("train.frozen names every part of the model; leave one to train")
    return parts


def make_optimizer(
    weight_decay: float,
    clip_norm: float,
    b1: float,
    b2: float,
    packs: bool = True,
    norm: Norm | None = None,
) -> optax.GradientTransformation:
    """AdamW at a learning rate of 1; `clip_norm` of 0 turns clipping off.

    `packs` is the fast form, which works on a few long vectors; the updates are the same.
    `norm` is that of gradients of which a device has only a part; they are not packed.
    """
    mask = packed_decay if packs else _leaf_decay
    optimizer = optax.adamw(1.0, b1, b2, weight_decay=weight_decay, mask=mask)
    if clip_norm:
        if packs or norm:
            clip = clip_by_factor(clip_norm, norm or optax.tree.norm)
        else:
            clip = optax.clip_by_global_norm(clip_norm)
        optimizer = optax.chain(clip, optimizer)
    # Where no norm needs all gradients first, XLA would mix the updates into the backward pass,
    # which takes a CPU longer.
    return packed(optimizer, waits=not clip_norm) if packs else optimizer


def clip_by_factor(clip_norm: float, norm: Norm) -> optax.GradientTransformation:
    """`optax.clip_by_global_norm` with one division instead of one an entry.

    XLA computes a product twice where two loops need it, but stores a quotient.
    """

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        factor = clip_norm / jnp.maximum(norm(gradients), clip_norm)
        return jax.tree.map(lambda leaf: leaf * factor, gradients), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def with_rates(
    optimizer: optax.GradientTransformation, factor: Callable[[Path], float]
) -> optax.GradientTransformation:
    """Multiplies the learning rate of each parameter by a factor of its path."""

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        flat = traverse_util.flatten_dict(updates)
        scaled = {path: factor(path) * leaf for path, leaf in flat.items()}
        return traverse_util.unflatten_dict(scaled), state

    return optax.GradientTransformation(optimizer.init, update)


def layer_factor(path: Path, layers: int, decay: float, context: float) -> float:
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
    if part.startswith(BLOCK):
        return decay ** (layers - int(part.removeprefix(BLOCK)))
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


def is_part(path: Path, part: str) -> bool:
    """Whether a parameter belongs to a part, such as `embedding` or `embedding/items`."""
    # A name in the path may have a slash itself, such as that of a feature.
    return f"{'/'.join(path)}/".startswith(f"{part}/")


def _leaf_decay(params: Any) -> Any:
    flat = traverse_util.flatten_dict(params)
    return traverse_util.unflatten_dict({path: is_decayed(path) for path in flat})
