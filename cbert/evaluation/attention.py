"""How much a model's attention gives to each feature of the context, block by block.

Legend: B examples of a batch, H heads, P query positions of a block, N names of what is read
(features, the null token, the tokens), L positions.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cbert.data.columns import Split
from cbert.errors import UserError
from cbert.evaluation import activations, sown
from cbert.evaluation.restore import Restored
from cbert.model.attention import WEIGHTS
from cbert.model.conditioning.method import TOKENS
from cbert.model.parameter_tree import BLOCK
from cbert.text_table import align

Array = jax.Array


def names(model: Any) -> list[str]:
    """What a model's positions read: its features, and what stands beside them."""
    return list(dict.fromkeys(_keys(model, 1)))


def _keys(model: Any, length: int) -> tuple[str, ...]:
    """What each key stands for, where there are so many tokens."""
    encoder = model.encoder
    return tuple(encoder.method.keys(encoder.features, length, encoder.options))


def by_name(model: Any, kept: dict[str, Any], length: int) -> list[Array]:
    """What each position gives to each name, `float32 [B, H, P, N]` for each block.

    Args:
      model: A model whose method shows its attention.
      kept: What its modules sowed.
      length: L.

    Raises:
      UserError: a method of somebody's own names other keys than there are, or shows none.
    """
    encoder = model.encoder
    keys, columns, method = _keys(model, length), names(model), encoder.method.__name__
    belongs = np.array([[key == name for name in columns] for key in keys], np.float32)
    weights = []
    for layer in range(encoder.config.layers):
        if TOKENS in columns:
            module = kept[f"{BLOCK}{layer}"]["attention"]
        else:
            module = kept.get("conditioning", {}).get(f"attention_{layer}", {})
        if WEIGHTS not in module:
            raise UserError(
                f"{method} has no module attention_{layer} that sows {WEIGHTS!r}; call an "
                f"Attention of that name, or name {TOKENS!r} among keys for that of the blocks"
            )
        (of_keys,) = module[WEIGHTS]
        if len(keys) != of_keys.shape[-1]:
            raise UserError(
                f"keys of {method} gives {len(keys)} names, and the attention of block "
                f"{layer + 1} has {of_keys.shape[-1]} keys; give a name for each"
            )
        weights.append(of_keys.astype(jnp.float32) @ belongs)
    return weights


def measure(restored: Restored, split: Split) -> dict[str, Any]:
    """The mean attention to each name: over heads and positions, and then over examples.

    In the last block the positions are those that the head reads: a masked one, or [CLS].

    Returns:
      `examples`; `weights`, a name to its mean in each block, which sum to 1 in a block; and
      `present`, a name to the fraction of the examples in which it could be read at all.
    """
    model = restored.task.model
    values, count = sown.over_queries(restored, split, means)
    weights = values["weights"].astype(np.float64)
    average, present = weights.mean(axis=0), (weights.max(axis=1) > 0).mean(axis=0)
    columns = names(model)
    return {
        "examples": count,
        "weights": dict(zip(columns, average.T.tolist(), strict=True)),
        "present": dict(zip(columns, present.tolist(), strict=True)),
    }


def means(model: Any, kept: dict[str, Any], mask: Array) -> dict[str, Array]:
    """The mean attention to each name over heads and positions, `weights [B, blocks, N]`."""
    blocks = by_name(model, kept, mask.shape[1])
    of_blocks = [sown.over_positions(block.mean(axis=1), mask) for block in blocks]
    return {"weights": jnp.stack(of_blocks, axis=1)}


def of_one(model: Any, params: Any, columns: dict[str, Any]) -> np.ndarray:
    """What each position of one example gives to each name, `float32 [blocks, L, N]`.

    Args:
      model: A model whose method shows its attention.
      params: Its parameters.
      columns: `items [1, L]`, `context`, and for texts `segments [1, L]`; nothing is padded.
    """
    length = columns["items"].shape[1]

    @jax.jit
    def compute(params: Any, columns: dict[str, Any]) -> Array:
        _, kept = activations.encode(model, params, columns)
        blocks = by_name(model, kept, length)
        return jnp.stack([block[0, :, :length].mean(axis=0) for block in blocks])

    return np.asarray(compute(params, columns))


def format_means(measured: dict[str, Any]) -> str:
    """A table of `measure`: a row for each name, a column for each block, in percent."""
    weights, present = measured["weights"], measured["present"]
    blocks = range(1, 1 + len(next(iter(weights.values()))))
    head = ["attention %", *(f"block {number}" for number in blocks), "present"]
    rows = [
        [name, *(f"{100 * mean:.1f}" for mean in means), f"{100 * present[name]:.1f}"]
        for name, means in weights.items()
    ]
    return align([head, *rows])


def format_one(positions: list[str], columns: list[str], weights: np.ndarray) -> str:
    """A table of weights `[L, N]`: a row for each position, a column for each name."""
    rows = [
        [position, *(f"{100 * weight:.1f}" for weight in row)]
        for position, row in zip(positions, weights, strict=True)
    ]
    return align([["attention %", *columns], *rows])
