"""The objective over the whole vocabulary, in chunks: logits are never held all at once.

Legend: Q queries, V items, D model dimension, K items of a chunk.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from cbert.model.look_up import look_up
from cbert.ranks import count_ahead

Array = jax.Array

CHUNK = 4096
# Up to FEW chunks are written out if they hold at most KEPT probabilities, which are then kept
# for the gradient. More chunks become a loop that computes them again.
FEW, KEPT = 16, 2**26


def _chunks(vocabulary: int, chunk: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Chunks of equal size that cover all items, the last one overlapping where it must.

    Returns:
      The size K, each chunk's start, and 1 for the items not yet counted in an earlier chunk,
      else 0.
    """
    number = -(-vocabulary // chunk)
    size = -(-vocabulary // number)
    covered = np.arange(number) * size
    starts = np.minimum(covered, vocabulary - size)
    not_counted = starts[:, None] + np.arange(size) >= covered[:, None]
    return size, starts, not_counted.astype(np.float32)


def _scan(few: bool, step: Callable, carry: Any, chunks: Sequence) -> tuple[Any, list | None]:
    """`lax.scan`, written out for few chunks: nothing is cleared, stacked or copied."""
    if not few:
        return lax.scan(step, carry, tuple(chunks))
    outputs = []
    for chunk in zip(*chunks, strict=True):
        carry, output = step(carry, chunk)
        outputs.append(output)
    return carry, outputs


def _part(table: Array, bias: Array, start: Array, size: int) -> tuple[Array, Array]:
    rows = lax.dynamic_slice_in_dim(table, start, size)
    return rows, lax.dynamic_slice_in_dim(bias, start, size)


def target_logits(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    """Each query's logit of its target, `float32 [Q]`; shapes as in `cross_entropy`."""
    return (hidden * table[targets]).sum(axis=1) + bias[targets]


def all_logits(hidden: Array, table: Array, bias: Array) -> Array:
    """The logits of all items in full precision, `[..., V]`, for hidden vectors `[..., D]`."""
    # With table.T, XLA on a CPU would transpose a copy of the table at every call.
    over_width = (((hidden.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(hidden, table, over_width, lax.Precision.HIGHEST) + bias


def cross_entropy(
    hidden: Array,
    table: Array,
    bias: Array,
    targets: Array,
    chunk: int = CHUNK,
    kept: int = KEPT,
) -> Array:
    """-log softmax(hidden table^T + bias) at the targets.

    Args:
      hidden: `float32 [Q, D]`.
      table: `float32 [V, D]`.
      bias: `float32 [V]`.
      targets: `int32 [Q]`, from 0 to V - 1.
      chunk: The most items whose logits are made at once.
      kept: The most probabilities that are kept for the gradient.

    Returns:
      `float32 [Q]`, nats.
    """
    own_rows, table = look_up(table, targets)
    own_bias, bias = look_up(bias, targets)
    normaliser = log_normaliser(hidden, table, bias, chunk, kept)
    return normaliser - (hidden * own_rows).sum(axis=1) - own_bias


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def log_normaliser(
    hidden: Array, table: Array, bias: Array, chunk: int = CHUNK, kept: int = KEPT
) -> Array:
    """The logarithm of the sum of exp(hidden table^T + bias) over items, `float32 [Q]`.

    Arguments as in `cross_entropy`.
    """
    return _forward(hidden, table, bias, chunk, kept)[0]


def _forward(
    hidden: Array, table: Array, bias: Array, chunk: int, kept: int
) -> tuple[Array, tuple]:
    """One pass over the table: the normaliser, and the row that each query expects.

    That row, sum_v p_v t_v, is the gradient of the normaliser by `hidden`. Both are summed
    relative to the running maximum of the logits.
    """
    size, starts, not_counted = _chunks(len(table), chunk)
    few = len(starts) <= FEW and len(hidden) * len(table) <= kept

    def add(carry: tuple, chunk: tuple) -> tuple[tuple, tuple | None]:
        running_max, total, expected = carry
        start, not_counted = chunk
        rows, offset = _part(table, bias, start, size)
        logits = hidden @ rows.T + offset
        new_max = jnp.maximum(running_max, logits.max(axis=1))
        unnormalised = jnp.exp(logits - new_max[:, None])
        shrink = jnp.exp(running_max - new_max)
        total = total * shrink + (unnormalised * not_counted).sum(axis=1)
        expected = expected * shrink[:, None] + unnormalised @ (rows * not_counted[:, None])
        return (new_max, total, expected), (unnormalised, new_max) if few else None

    first = (jnp.full(len(hidden), -jnp.inf), jnp.zeros(len(hidden)), jnp.zeros_like(hidden))
    (running_max, total, expected), saved = _scan(few, add, first, (starts, not_counted))
    normaliser = running_max + jnp.log(total)
    expected = expected / total[:, None]
    return normaliser, (hidden, table, bias, normaliser, expected, saved)


def _backward(
    chunk: int, kept: int, residuals: tuple, gradient: Array
) -> tuple[Array, Array, Array]:
    del kept
    hidden, table, bias, normaliser, expected, saved = residuals
    size, starts, _ = _chunks(len(table), chunk)
    few = saved is not None

    def write(carry: tuple, chunk: tuple) -> tuple[tuple, None]:
        d_table, d_bias = carry
        start, scale = chunk[0], gradient
        if few:
            unnormalised, chunk_max = chunk[1]
            scale = gradient * jnp.exp(chunk_max - normaliser)
        else:
            rows, offset = _part(table, bias, start, size)
            unnormalised = jnp.exp(hidden @ rows.T + offset - normaliser[:, None])
        d_rows = unnormalised.T @ (hidden * scale[:, None])
        # Overlapping chunks write the same values twice.
        d_table = lax.dynamic_update_slice_in_dim(d_table, d_rows, start, 0)
        d_bias = lax.dynamic_update_slice_in_dim(d_bias, scale @ unnormalised, start, 0)
        return (d_table, d_bias), None

    first = (lax.empty(table.shape, table.dtype), lax.empty(bias.shape, bias.dtype))
    chunks = (starts, saved) if few else (starts,)
    (d_table, d_bias), _ = _scan(few, write, first, chunks)
    return gradient[:, None] * expected, d_table, d_bias


log_normaliser.defvjp(_forward, _backward)


def score(
    hidden: Array, table: Array, bias: Array, targets: Array, chunk: int = CHUNK
) -> tuple[Array, Array]:
    """Log-probability (nats) and rank of the targets among all items.

    Shapes as in `cross_entropy`. The rank counts from 1; ties count against the target.
    """
    own = target_logits(hidden, table, bias, targets)
    normaliser, ahead = normalise_and_count(hidden, table, bias, targets, own, chunk)
    return own - normaliser, ahead + 1


def normalise_and_count(
    hidden: Array, table: Array, bias: Array, targets: Array, own: Array, chunk: int = CHUNK
) -> tuple[Array, Array]:
    """The log-normaliser, and the number of items ranked ahead of the target.

    Products are full float32 on every device, because ranks depend on small differences.

    Args:
      hidden, table, bias: As in `cross_entropy`.
      targets: `int32 [Q]`, rows of the table that are not counted; -1 for none.
      own: `float32 [Q]`, the logits of the targets.

    Returns:
      `float32 [Q]` and `int32 [Q]`.
    """
    size, starts, not_counted = _chunks(len(table), chunk)

    def add(carry: tuple, chunk: tuple) -> tuple[tuple, None]:
        running_max, total, ahead = carry
        start, not_counted = chunk
        rows, offset = _part(table, bias, start, size)
        logits = jnp.dot(hidden, rows.T, precision=lax.Precision.HIGHEST) + offset
        new_max = jnp.maximum(running_max, logits.max(axis=1))
        unnormalised = jnp.exp(logits - new_max[:, None]) * not_counted
        total = total * jnp.exp(running_max - new_max) + unnormalised.sum(axis=1)
        other = (start + jnp.arange(size) != targets[:, None]) & (not_counted > 0)
        ahead += count_ahead(logits, own, other)
        return (new_max, total, ahead), None

    rows = len(hidden)
    first = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(rows, jnp.int32))
    chunks = (starts, not_counted)
    (running_max, total, ahead), _ = _scan(len(starts) <= FEW, add, first, chunks)
    return running_max + jnp.log(total), ahead


def plain_cross_entropy(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    """The same as `cross_entropy` by the library, which holds all logits at once."""
    logits = hidden @ table.T + bias
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)
