"""The scores of masked items among all items: logits, log-probabilities and ranks.

Legend: Q queries, V items, D model dimension.
"""

import jax
import jax.numpy as jnp
from jax import lax

from cbert import parallel
from cbert.model.cross_entropy import MOST_KEPT, items_at_once
from cbert.model.item_chunks import chunks, inner_products, part
from cbert.ranks import count_ahead

Array = jax.Array

# The most logits that a CPU makes without chunks; of more it makes chunks that its cache holds.
AT_ONCE = 2**22


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
    return inner_products(hidden, table, lax.Precision.HIGHEST) + bias


def score(
    hidden: Array, table: Array, bias: Array, targets: Array, chunk_size: int | None = None
) -> tuple[Array, Array]:
    """Log-probability (nats) and rank of the targets among all items.

    Shapes as in `cross_entropy`, and `chunk_size` as in `normalise_and_count`. The rank counts
    from 1; ties count against the target.
    """
    own = target_logits(hidden, table, bias, targets)
    tied = least_tied(hidden, table, bias, targets, own)
    normaliser, ahead = normalise_and_count(hidden, table, bias, targets, tied, chunk_size)
    return own - normaliser, ahead + 1


def most_at_once() -> int:
    """The most logits that are made without chunks."""
    # A GPU has no cache that chunks would fit into, and starts each loop late.
    return MOST_KEPT if parallel.platform() == "gpu" else AT_ONCE


def normalise_and_count(
    hidden: Array,
    table: Array,
    bias: Array,
    targets: Array,
    tied: Array,
    chunk_size: int | None = None,
) -> tuple[Array, Array]:
    """The log-normaliser, and the number of items ranked ahead of the target.

    Products are full float32 on every device, because ranks depend on small differences.

    Args:
      hidden, table, bias: As in `cross_entropy`.
      targets: `int32 [Q]`, rows of the table that are not counted; -1 for none.
      tied: `float32 [Q]`, from which logit on an item is ahead, see `least_tied`.
      chunk_size: The items of a chunk; None for as many as are fastest.

    Returns:
      `float32 [Q]` and `int32 [Q]`.
    """
    size = chunk_size or items_at_once(len(hidden), len(table), whole=most_at_once())

    def add(carry: tuple, chunk: tuple) -> tuple[tuple, None]:
        running_max, total, ahead = carry
        start, not_counted = chunk
        rows, offset = part(table, bias, start, size)
        logits = inner_products(hidden, rows, lax.Precision.HIGHEST) + offset
        new_max = jnp.maximum(running_max, logits.max(axis=1))
        unnormalised = jnp.exp(logits - new_max[:, None]) * not_counted
        total = total * jnp.exp(running_max - new_max) + unnormalised.sum(axis=1)
        other = (start + jnp.arange(size) != targets[:, None]) & (not_counted > 0)
        ahead += count_ahead(logits, tied, other)
        return (new_max, total, ahead), None

    rows = len(hidden)
    first = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(rows, jnp.int32))
    (running_max, total, ahead), _ = lax.scan(add, first, chunks(len(table), size))
    return running_max + jnp.log(total), ahead
