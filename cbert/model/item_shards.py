"""The item table split over devices: each has some of its rows, and scores all queries by them.

Device d of n holds the rows from d R on, with R = V / n rounded up, and those entries of the
output layer's bias. The last devices' rows beyond V are padding.

Every gradient comes out whole: that of a device's rows from the queries of all devices, and
that of a query from the rows of all devices.

Legend: Q queries of one device, N items that it looks up, n devices, R rows of one device, V
items, D model dimension.
"""

import jax
import jax.numpy as jnp
from jax.nn import logsumexp

from cbert import collectives
from cbert.model import cross_entropy as kernels
from cbert.model import scoring
from cbert.model.look_up import look_up as look_up_own

Array = jax.Array

# The logit of padding. It is finite, because a device may hold nothing but padding.
PADDING = -1e30


def row_count(vocabulary: int, shards: int) -> int:
    """R inside a mapped function; outside, where nothing is split, n R."""
    own = -(-vocabulary // shards)
    return own if collectives.is_mapped() else shards * own


def without_padding(bias: Array, vocabulary: int) -> Array:
    """The bias `[R]` of this device's rows, with which padding has no probability."""
    items = collectives.device_index() * len(bias) + jnp.arange(len(bias))
    return jnp.where(items < vocabulary, bias, PADDING)


def _own_rows(items: Array, rows: int) -> tuple[Array, Array]:
    """The items' rows in this device's table, and which of them it holds."""
    row = items - collectives.device_index() * rows
    held = (row >= 0) & (row < rows)
    return jnp.where(held, row, 0), held


def look_up(table: Array, items: Array) -> tuple[Array, Array]:
    """The items' rows, wherever they are held, and this device's table for further use.

    Args:
      table: `[R, ...]`, such as `[R, D]` or the bias `[R]`.
      items: `int32 [N, ...]`, of the same shape on every device.

    Returns:
      `[N, ..., D]` or `[N, ...]`, and the table.
    """
    rows, held = _own_rows(collectives.gather(items), len(table))
    found, table = look_up_own(table, rows)
    held = held.reshape(held.shape + (1,) * (found.ndim - held.ndim))
    return collectives.sum_parts(jnp.where(held, found, 0)), table


def cross_entropy(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    """-log softmax over all items at the targets, `float32 [Q]`, nats.

    Args:
      hidden: `float32 [Q, D]` or bfloat16, this device's queries.
      table: `float32 [R, D]`, this device's rows.
      bias: `float32 [R]`.
      targets: `int32 [Q]`, from 0 to V - 1.
    """
    own_rows, table = look_up(table, targets)
    own_bias, bias = look_up(bias, targets)
    of_rows = kernels.log_normaliser(collectives.gather(hidden), table, bias)
    normaliser = logsumexp(collectives.exchange(of_rows), axis=0)
    return normaliser - kernels.own_logits(hidden, own_rows) - own_bias


def score(hidden: Array, table: Array, bias: Array, targets: Array) -> tuple[Array, Array]:
    """Log-probability (nats) and rank of the targets among all items; see `scoring.score`.

    Shapes as in `cross_entropy`.
    """
    hidden = collectives.gather(hidden)
    rows, held = _own_rows(collectives.gather(targets), len(table))
    logits = scoring.target_logits(hidden, table, bias, rows)
    tied = scoring.least_tied(hidden, table, bias, rows, logits)
    own, tied = (collectives.sum_parts(jnp.where(held, of, 0)) for of in (logits, tied))
    of_rows, ahead = scoring.normalise_and_count(
        hidden, table, bias, jnp.where(held, rows, -1), collectives.gather(tied)
    )
    normaliser = logsumexp(collectives.exchange(of_rows), axis=0)
    return own - normaliser, collectives.sum_parts(ahead) + 1
