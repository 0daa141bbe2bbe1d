"""The objective over the whole vocabulary, and scores of masked items.

The loss makes up to WHOLE logits at once, and more in chunks of items; scores have chunks.

Legend: Q queries, V items, D model dimension, K items of a chunk.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from cbert.model import products
from cbert.model.look_up import look_up
from cbert.ranks import count_ahead

Array = jax.Array

CHUNK = 4096
WHOLE = 2**26
# Exponentials keep all their digits if they are shifted by up to this much too far.
SPREAD = 50.0


def items_at_once(queries: int, vocabulary: int, chunk: int = CHUNK, whole: int = WHOLE) -> int:
    """K, the items whose logits the loss makes at once: all, or those of equal chunks."""
    return vocabulary if queries * vocabulary <= whole else _chunk_size(vocabulary, chunk)


def _chunk_size(vocabulary: int, chunk: int) -> int:
    number = -(-vocabulary // chunk)
    return -(-vocabulary // number)


def _chunks(vocabulary: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Chunks of equal size that cover all items, the last one overlapping where it must.

    Returns:
      Each chunk's start, and 1 for the items not yet counted in an earlier chunk, else 0.
    """
    covered = np.arange(-(-vocabulary // size)) * size
    starts = np.minimum(covered, vocabulary - size)
    not_counted = starts[:, None] + np.arange(size) >= covered[:, None]
    return starts, not_counted.astype(np.float32)


def _part(table: Array, bias: Array, start: Array, size: int) -> tuple[Array, Array]:
    rows = lax.dynamic_slice_in_dim(table, start, size)
    return rows, lax.dynamic_slice_in_dim(bias, start, size)


def target_logits(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    """Each query's logit of its target, `float32 [Q]`; shapes as in `cross_entropy`."""
    return (hidden * table[targets]).sum(axis=1) + bias[targets]


def least_tied(hidden: Array, table: Array, bias: Array, targets: Array, own: Array) -> Array:
    """The least logit that counts as equal to the target's, `float32 [Q]`.

    Equal items may differ by rounding, because the sums of one product are ordered in another
    way than those of all; shapes as in `cross_entropy`, and `own` is of `target_logits`.
    """
    size = jnp.linalg.norm(hidden, axis=1) * jnp.linalg.norm(table[targets], axis=1)
    return own - 4 * jnp.finfo(own.dtype).eps * (size + jnp.abs(bias[targets]))


def all_logits(hidden: Array, table: Array, bias: Array) -> Array:
    """The logits of all items in full precision, `[..., V]`, for hidden vectors `[..., D]`."""
    return _products(hidden, table, lax.Precision.HIGHEST) + bias


def _products(hidden: Array, table: Array, precision: lax.Precision | None = None) -> Array:
    """hidden table^T, `float32 [..., V]`."""
    if products.are_fast(hidden.dtype):
        return products.multiply(hidden, table.astype(hidden.dtype), transposed=True)
    # With table.T, XLA on a CPU would transpose a copy of the table at every call.
    over_width = (((hidden.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(hidden, table, over_width, precision)


def cross_entropy(
    hidden: Array,
    table: Array,
    bias: Array,
    targets: Array,
    chunk: int = CHUNK,
    whole: int = WHOLE,
) -> Array:
    """-log softmax(hidden table^T + bias) at the targets.

    Args:
      hidden: `float32 [Q, D]`, or bfloat16, for products of bfloat16 with float32 sums.
      table: `float32 [V, D]`.
      bias: `float32 [V]`.
      targets: `int32 [Q]`, from 0 to V - 1.
      chunk: The most items of a chunk.
      whole: The most logits that are made at once, without chunks.

    Returns:
      `float32 [Q]`, nats.
    """
    own_rows, table = look_up(table, targets)
    own_bias, bias = look_up(bias, targets)
    normaliser = log_normaliser(hidden, table, bias, chunk, whole)
    own = hidden.astype(jnp.float32) * own_rows.astype(hidden.dtype)
    return normaliser - own.sum(axis=1) - own_bias


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def log_normaliser(
    hidden: Array, table: Array, bias: Array, chunk: int = CHUNK, whole: int = WHOLE
) -> Array:
    """The logarithm of the sum of exp(hidden table^T + bias) over items, `float32 [Q]`.

    Arguments as in `cross_entropy`.
    """
    return _forward(hidden, table, bias, chunk, whole)[0]


def _forward(
    hidden: Array, table: Array, bias: Array, chunk: int, whole: int
) -> tuple[Array, tuple]:
    """One pass over the table: the normaliser, and the row that each query expects.

    That row, sum_v p_v t_v, is the gradient of the normaliser by `hidden`.
    """
    size = items_at_once(len(hidden), len(table), chunk, whole)
    if size == len(table):
        normaliser, expected, saved = _at_once(hidden, table, bias)
    else:
        normaliser, expected = _in_chunks(hidden, table, bias, size)
        saved = None
    return normaliser, (hidden, table, bias, normaliser, expected, saved)


def _at_once(hidden: Array, table: Array, bias: Array) -> tuple[Array, Array, tuple]:
    """The same with all logits at once; also what the table's gradient is made from."""
    logits = _products(hidden, table)
    shift = _shift(logits, bias)
    unnormalised = jnp.exp(logits + bias - shift[:, None])
    total = unnormalised.sum(axis=1)
    unnormalised = unnormalised.astype(hidden.dtype)
    expected = _sums(unnormalised, table) / total[:, None]
    return shift + jnp.log(total), expected, (unnormalised, total)


def _sums(weights: Array, rows: Array) -> Array:
    """The sums of the rows `[K, D]` by each query's weights `[Q, K]`, `float32 [Q, D]`."""
    if products.are_fast(weights.dtype):
        return products.multiply(weights, rows.astype(weights.dtype))
    return weights @ rows


def _shift(logits: Array, bias: Array) -> Array:
    """What a query's largest logit does not exceed, and comes near to, `[Q]`."""
    # XLA on a CPU would store the sums of products and bias to find the largest one.
    largest = bias.max()
    return lax.cond(
        largest - bias.min() < SPREAD,
        lambda: logits.max(axis=1) + largest,
        lambda: (logits + bias).max(axis=1),
    )


def _in_chunks(hidden: Array, table: Array, bias: Array, size: int) -> tuple[Array, Array]:
    """The same in chunks; sums are relative to the running maximum of the logits."""

    def add(carry: tuple, chunk: tuple) -> tuple[tuple, None]:
        running_max, total, expected = carry
        start, not_counted = chunk
        rows, offset = _part(table, bias, start, size)
        logits = _products(hidden, rows) + offset
        new_max = jnp.maximum(running_max, logits.max(axis=1))
        unnormalised = jnp.exp(logits - new_max[:, None])
        shrink = jnp.exp(running_max - new_max)
        total = total * shrink + (unnormalised * not_counted).sum(axis=1)
        rows = rows * not_counted[:, None]
        expected = expected * shrink[:, None] + _sums(unnormalised.astype(hidden.dtype), rows)
        return (new_max, total, expected), None

    first = (
        jnp.full(len(hidden), -jnp.inf),
        jnp.zeros(len(hidden)),
        jnp.zeros(hidden.shape, jnp.float32),
    )
    (running_max, total, expected), _ = lax.scan(add, first, _chunks(len(table), size))
    return running_max + jnp.log(total), expected / total[:, None]


def _backward(
    chunk: int, whole: int, residuals: tuple, gradient: Array
) -> tuple[Array, Array, Array]:
    hidden, table, bias, normaliser, expected, saved = residuals
    d_hidden = (gradient[:, None] * expected).astype(hidden.dtype)
    if saved is not None:
        unnormalised, total = saved
        return d_hidden, *_of_rows(unnormalised, hidden, gradient / total)
    size = items_at_once(len(hidden), len(table), chunk, whole)

    def write(carry: Any, start: Any) -> tuple[Any, None]:
        rows, offset = _part(table, bias, start, size)
        probabilities = jnp.exp(_products(hidden, rows) + offset - normaliser[:, None])
        own = _of_rows(probabilities, hidden, gradient)
        # Overlapping chunks write the same values twice.
        return tuple(
            lax.dynamic_update_slice_in_dim(gradients, part, start, 0)
            for gradients, part in zip(carry, own, strict=True)
        ), None

    first = (lax.empty(table.shape, table.dtype), lax.empty(bias.shape, bias.dtype))
    (d_table, d_bias), _ = lax.scan(write, first, _chunks(len(table), size)[0])
    return d_hidden, d_table, d_bias


def _of_rows(probabilities: Array, hidden: Array, scale: Array) -> tuple[Array, Array]:
    """The gradients of rows and of their biases by each query's `scale`."""
    if products.are_fast(hidden.dtype):
        probabilities = probabilities.astype(hidden.dtype)
        scaled = (hidden * scale[:, None]).astype(hidden.dtype)
        of_biases = products.sum_rows(scale.astype(hidden.dtype), probabilities)
        return products.multiply(probabilities.T, scaled), of_biases
    return probabilities.T @ (hidden * scale[:, None]), scale @ probabilities


log_normaliser.defvjp(_forward, _backward)


def score(
    hidden: Array, table: Array, bias: Array, targets: Array, chunk: int = CHUNK
) -> tuple[Array, Array]:
    """Log-probability (nats) and rank of the targets among all items.

    Shapes as in `cross_entropy`. The rank counts from 1; ties count against the target.
    """
    own = target_logits(hidden, table, bias, targets)
    tied = least_tied(hidden, table, bias, targets, own)
    normaliser, ahead = normalise_and_count(hidden, table, bias, targets, tied, chunk)
    return own - normaliser, ahead + 1


def normalise_and_count(
    hidden: Array, table: Array, bias: Array, targets: Array, tied: Array, chunk: int = CHUNK
) -> tuple[Array, Array]:
    """The log-normaliser, and the number of items ranked ahead of the target.

    Products are full float32 on every device, because ranks depend on small differences.

    Args:
      hidden, table, bias: As in `cross_entropy`.
      targets: `int32 [Q]`, rows of the table that are not counted; -1 for none.
      tied: `float32 [Q]`, from which logit on an item is ahead, see `least_tied`.
      chunk: The most items of a chunk.

    Returns:
      `float32 [Q]` and `int32 [Q]`.
    """
    size = _chunk_size(len(table), chunk)

    def add(carry: tuple, chunk: tuple) -> tuple[tuple, None]:
        running_max, total, ahead = carry
        start, not_counted = chunk
        rows, offset = _part(table, bias, start, size)
        logits = _products(hidden, rows, lax.Precision.HIGHEST) + offset
        new_max = jnp.maximum(running_max, logits.max(axis=1))
        unnormalised = jnp.exp(logits - new_max[:, None]) * not_counted
        total = total * jnp.exp(running_max - new_max) + unnormalised.sum(axis=1)
        other = (start + jnp.arange(size) != targets[:, None]) & (not_counted > 0)
        ahead += count_ahead(logits, tied, other)
        return (new_max, total, ahead), None

    rows = len(hidden)
    first = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(rows, jnp.int32))
    # Chunks fit into a CPU's cache, so that a loop is faster than all items at once.
    (running_max, total, ahead), _ = lax.scan(add, first, _chunks(len(table), size))
    return running_max + jnp.log(total), ahead


def plain_cross_entropy(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    """The same as `cross_entropy` by the library, which holds all logits at once."""
    logits = hidden @ table.T + bias
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)
