"""The objective over the whole vocabulary, in chunks: logits are never held all at once.

Legend: Q questions, V items, D model dimension, K items of a chunk.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array

CHUNK = 4096
# So many chunks are written out, if that makes at most so many probabilities, which are then
# kept for the gradient. More chunks become a loop that makes them again.
FEW, KEPT = 16, 2**26


def _chunks(vocabulary: int, chunk: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Chunks of equal size that cover all items, the last one overlapping where it must.

    Returns:
      The size K, each chunk's start, and 1 for the items that no chunk before holds, else 0.
    """
    number = -(-vocabulary // chunk)
    size = -(-vocabulary // number)
    covered = np.arange(number) * size
    starts = np.minimum(covered, vocabulary - size)
    fresh = starts[:, None] + np.arange(size) >= covered[:, None]
    return size, starts, fresh.astype(np.float32)


def _scan(few: bool, step: Callable, carry: Any, chunks: Sequence) -> tuple[Any, list | None]:
    """`lax.scan`, written out for few chunks: nothing is cleared, stacked or copied."""
    if not few:
        return lax.scan(step, carry, tuple(chunks))
    made = []
    for chunk in zip(*chunks, strict=True):
        carry, out = step(carry, chunk)
        made.append(out)
    return carry, made


def _part(table: Array, bias: Array, start: Array, size: int) -> tuple[Array, Array]:
    rows = lax.dynamic_slice_in_dim(table, start, size)
    return rows, lax.dynamic_slice_in_dim(bias, start, size)


def _target_logits(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    return (hidden * table[targets]).sum(axis=1) + bias[targets]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
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
    return _forward(hidden, table, bias, targets, chunk, kept)[0]


def _forward(hidden, table, bias, targets, chunk, kept):
    """One pass over the table: the normalizer, and the row that each question expects.

    That row, sum_v p_v t_v, is the gradient of the normalizer by `hidden`. Both are summed
    relative to the largest logit so far.
    """
    size, starts, fresh = _chunks(len(table), chunk)
    few = len(starts) <= FEW and len(hidden) * len(table) <= kept

    def add(carry, chunk):
        most, total, expected = carry
        start, fresh = chunk
        rows, offset = _part(table, bias, start, size)
        logits = hidden @ rows.T + offset
        now = jnp.maximum(most, logits.max(axis=1))
        weights = jnp.exp(logits - now[:, None])
        shrink = jnp.exp(most - now)
        total = total * shrink + (weights * fresh).sum(axis=1)
        expected = expected * shrink[:, None] + weights @ (rows * fresh[:, None])
        return (now, total, expected), (weights, now) if few else None

    first = (jnp.full(len(hidden), -jnp.inf), jnp.zeros(len(hidden)), jnp.zeros_like(hidden))
    (most, total, expected), saved = _scan(few, add, first, (starts, fresh))
    normalizer = most + jnp.log(total)
    loss = normalizer - _target_logits(hidden, table, bias, targets)
    expected = expected / total[:, None]
    return loss, (hidden, table, bias, targets, normalizer, expected, saved)


def _backward(chunk, kept, residuals, gradient):
    del kept
    hidden, table, bias, targets, normalizer, expected, saved = residuals
    size, starts, _ = _chunks(len(table), chunk)
    few = saved is not None

    def write(carry, chunk):
        d_table, d_bias = carry
        start, scale = chunk[0], gradient
        if few:
            weights, most = chunk[1]
            scale = gradient * jnp.exp(most - normalizer)
        else:
            rows, offset = _part(table, bias, start, size)
            weights = jnp.exp(hidden @ rows.T + offset - normalizer[:, None])
        d_rows = weights.T @ (hidden * scale[:, None])
        # Where chunks overlap, the same values are written twice.
        d_table = lax.dynamic_update_slice_in_dim(d_table, d_rows, start, 0)
        d_bias = lax.dynamic_update_slice_in_dim(d_bias, scale @ weights, start, 0)
        return (d_table, d_bias), None

    first = (lax.empty(table.shape, table.dtype), lax.empty(bias.shape, bias.dtype))
    chunks = (starts, saved) if few else (starts,)
    (d_table, d_bias), _ = _scan(few, write, first, chunks)
    d_hidden = gradient[:, None] * (expected - table[targets])
    d_table = d_table.at[targets].add(-gradient[:, None] * hidden)
    d_bias = d_bias.at[targets].add(-gradient)
    return d_hidden, d_table, d_bias, None


cross_entropy.defvjp(_forward, _backward)


def score(
    hidden: Array, table: Array, bias: Array, targets: Array, chunk: int = CHUNK
) -> tuple[Array, Array]:
    """Log-probability (nats) and rank of the targets among all items.

    Shapes as in `cross_entropy`. The rank counts from 1; ties count against the target.
    Products are full float32 on every device, for ranks hang on small differences.
    """
    size, starts, fresh = _chunks(len(table), chunk)
    own = _target_logits(hidden, table, bias, targets)

    def add(carry: tuple[Array, Array, Array], chunk: tuple[Array, Array]):
        most, total, ahead = carry
        start, fresh = chunk
        rows, offset = _part(table, bias, start, size)
        logits = jnp.dot(hidden, rows.T, precision=lax.Precision.HIGHEST) + offset
        now = jnp.maximum(most, logits.max(axis=1))
        weights = jnp.exp(logits - now[:, None]) * fresh
        total = total * jnp.exp(most - now) + weights.sum(axis=1)
        other = (start + jnp.arange(size) != targets[:, None]) & (fresh > 0)
        ahead += ((logits >= own[:, None]) & other).sum(axis=1)
        return (now, total, ahead), None

    rows = len(hidden)
    first = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(rows, jnp.int32))
    (most, total, ahead), _ = _scan(len(starts) <= FEW, add, first, (starts, fresh))
    return own - most - jnp.log(total), ahead + 1
