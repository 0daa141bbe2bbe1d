"""The objective over the whole vocabulary.

Up to MOST_KEPT exponentials are kept for the backward pass. If there are more, they are made
twice, in chunks of the items.

Legend: Q queries, V items, D model dimension, K items of a chunk.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from cbert import parallel
from cbert.model import item_chunks, products
from cbert.model.item_chunks import CHUNK, chunk_size, chunks, inner_products
from cbert.model.look_up import look_up

Array = jax.Array

MOST_KEPT = 2**27
# Exponentials keep all their digits if they are shifted by up to this much too far.
SPREAD = 50.0
# The logits of a part of the items, which a CPU's cache holds, and the most parts.
IN_CACHE = 5 * 2**18
MOST_PARTS = 8


def items_at_once(
    queries: int, vocabulary: int, chunk: int = CHUNK, whole: int = MOST_KEPT
) -> int:
    """K, the items whose logits the loss makes at once: all, or those of equal chunks."""
    return vocabulary if queries * vocabulary <= whole else chunk_size(vocabulary, chunk)


def cross_entropy(
    hidden: Array,
    table: Array,
    bias: Array,
    targets: Array,
    chunk: int = CHUNK,
    whole: int = MOST_KEPT,
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
    return normaliser - own_logits(hidden, own_rows) - own_bias


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def log_normaliser(
    hidden: Array, table: Array, bias: Array, chunk: int = CHUNK, whole: int = MOST_KEPT
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
    """Sums over the items seen so far; exponentials are relative to exp(shift), `[Q]`.

    Attributes:
      shift: `[Q]`, what no logit exceeds, see `_shift`.
      total: `[Q]`, the sum of exponentials.
      rows: `[D, Q]`, the sum of the items' rows, each times its exponential.
    """

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
        logits = inner_products(rows, hidden)
        if parallel.platform() == "gpu":
            # XLA would store the bias of every logit to have the product add it.
            logits = lax.optimization_barrier(logits)
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
    if products.are_fast(hidden.dtype) and parallel.platform() == "cpu":
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
    if parallel.platform() != "cpu":
        return (logits + bias[:, None]).max(axis=0)
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
        rows, offset = item_chunks.part(table, bias, start, size)
        offset = jnp.where(not_counted > 0, offset, -jnp.inf)
        return sums.add(hidden, rows, offset)[0], None

    return lax.scan(add, _Sums.zero(hidden), chunks(len(table), size))[0]


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
        rows, offset = item_chunks.part(table, bias, start, size)
        logits = inner_products(rows.astype(hidden.dtype), hidden)
        probabilities = jnp.exp(logits + offset[:, None] - normaliser)
        own = _of_rows(probabilities.astype(hidden.dtype), hidden, gradient)
        # Overlapping chunks write the same values twice.
        return tuple(
            lax.dynamic_update_slice_in_dim(gradients, part, start, 0)
            for gradients, part in zip(carry, own, strict=True)
        ), None

    first = (lax.empty(table.shape, table.dtype), lax.empty(bias.shape, bias.dtype))
    (d_table, d_bias), _ = lax.scan(write, first, chunks(len(table), size)[0])
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


def own_logits(hidden: Array, rows: Array) -> Array:
    """Each query's product with a row of its own, `float32 [Q]`, for rows `float32 [Q, D]`."""
    return (hidden.astype(jnp.float32) * rows.astype(hidden.dtype)).sum(axis=1)


def inner_logits(hidden: Array, rows: Array) -> Array:
    """hidden rows^T, `float32 [Q, K]`, for rows `float32 [K, D]`; differentiated by JAX."""
    if products.are_fast(hidden.dtype):
        return products.row_products(hidden, rows)
    return hidden @ rows.T


def plain_cross_entropy(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    """The same as `cross_entropy` by the library, which holds all logits at once."""
    logits = inner_logits(hidden, table) + bias
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)
