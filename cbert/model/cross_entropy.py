"""The objective over the whole vocabulary, and scores of masked items.

The loss makes up to WHOLE logits at once, and more in chunks of items; scores have chunks.

Legend: Q queries, V items, D model dimension, K items of a chunk.
"""

import functools
from typing import Any, NamedTuple

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
# The logits of a part of the items, which a CPU's cache holds, and the most parts.
IN_CACHE = 5 * 2**18
MOST_PARTS = 8


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


def _products(x: Array, y: Array, precision: lax.Precision | None = None) -> Array:
    """x y^T, `float32 [..., N]`, for `y` `[N, D]`."""
    if products.are_fast(x.dtype):
        return products.multiply(x, y.astype(x.dtype), transposed=True)
    # With y.T, XLA on a CPU would transpose a copy of it at every call.
    over_width = (((x.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(x, y, over_width, precision, jnp.float32)


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
        sums, saved = _kept(hidden, table, bias)
    else:
        sums, saved = _in_chunks(hidden, table, bias, size), None
    normaliser = sums.shift + jnp.log(sums.total)
    return normaliser, (hidden, table, bias, normaliser, sums, saved)


class _Sums(NamedTuple):
    """Sums over the items seen so far; exponentials are relative to exp(shift), `[Q]`."""

    shift: Array
    total: Array
    rows: Array

    @classmethod
    def zero(cls, hidden: Array) -> "_Sums":
        queries, size = hidden.shape
        return cls(jnp.full(queries, -jnp.inf), jnp.zeros(queries), jnp.zeros((size, queries)))

    def add(self, hidden: Array, rows: Array, bias: Array) -> tuple["_Sums", Array]:
        """Adds the items of `rows`, `[K, D]`; also returns their exponentials, `[K, Q]`."""
        rows = rows.astype(hidden.dtype)
        logits = _products(rows, hidden)
        shift = jnp.maximum(self.shift, _shift(logits, bias))
        exponentials = jnp.exp(logits + bias[:, None] - shift)
        shrink = jnp.exp(self.shift - shift)
        total = self.total * shrink + exponentials.sum(axis=0)
        exponentials = exponentials.astype(hidden.dtype)
        of_rows = self.rows * shrink + _multiply(rows.T, exponentials)
        return _Sums(shift, total, of_rows), exponentials


def _kept(hidden: Array, table: Array, bias: Array) -> tuple[_Sums, list]:
    """The sums over all items, and the exponentials that the table's gradient is made from."""
    sums, saved = _Sums.zero(hidden), []
    for part in _parts(hidden, len(table)):
        sums, exponentials = sums.add(hidden, table[part], bias[part])
        saved.append((exponentials, sums.shift))
    return sums, saved


def _parts(hidden: Array, vocabulary: int) -> list[slice]:
    """The items, in parts whose logits a cache holds where small products are fast, too."""
    number = 1
    if products.are_fast(hidden.dtype):
        number = min(-(-len(hidden) * vocabulary // IN_CACHE), MOST_PARTS)
    size = -(-vocabulary // number)
    return [slice(start, start + size) for start in range(0, vocabulary, size)]


def _multiply(x: Array, y: Array) -> Array:
    """x y, with float32 sums."""
    if products.are_fast(x.dtype):
        return products.multiply(x, y)
    return jnp.matmul(x, y, preferred_element_type=jnp.float32)


def _shift(logits: Array, bias: Array) -> Array:
    """What a query's largest logit does not exceed, and comes near to, `[Q]`."""
    # XLA on a CPU would store the sums of products and bias to find the largest one.
    largest = bias.max()
    return lax.cond(
        largest - bias.min() < SPREAD,
        lambda: logits.max(axis=0) + largest,
        lambda: (logits + bias[:, None]).max(axis=0),
    )


def _in_chunks(hidden: Array, table: Array, bias: Array, size: int) -> _Sums:
    """The sums over all items, in chunks of `size`."""

    def add(sums: _Sums, chunk: tuple) -> tuple[_Sums, None]:
        start, not_counted = chunk
        rows, offset = _part(table, bias, start, size)
        offset = jnp.where(not_counted > 0, offset, -jnp.inf)
        return sums.add(hidden, rows, offset)[0], None

    return lax.scan(add, _Sums.zero(hidden), _chunks(len(table), size))[0]


def _backward(
    chunk: int, whole: int, residuals: tuple, gradient: Array
) -> tuple[Array, Array, Array]:
    hidden, table, bias, normaliser, sums, saved = residuals
    scale = gradient / sums.total
    d_hidden = (sums.rows * scale).T.astype(hidden.dtype)
    if saved is not None:
        parts = [
            _of_rows(exponentials, hidden, scale * jnp.exp(shift - sums.shift))
            for exponentials, shift in saved
        ]
        d_table, d_bias = (jnp.concatenate(each) for each in zip(*parts, strict=True))
        return d_hidden, d_table, d_bias
    size = items_at_once(len(hidden), len(table), chunk, whole)

    def write(carry: Any, start: Any) -> tuple[Any, None]:
        rows, offset = _part(table, bias, start, size)
        logits = _products(rows.astype(hidden.dtype), hidden)
        probabilities = jnp.exp(logits + offset[:, None] - normaliser)
        own = _of_rows(probabilities.astype(hidden.dtype), hidden, gradient)
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
    scaled = (hidden * scale[:, None]).astype(hidden.dtype)
    if products.are_fast(hidden.dtype):
        of_biases = products.sum_columns(probabilities, scale.astype(hidden.dtype))
    else:
        of_biases = probabilities @ scale
    return _multiply(probabilities, scaled), of_biases


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
