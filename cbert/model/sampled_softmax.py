"""The objective over a sample of the items, for vocabularies too large to go through.

Legend: Q queries, S sampled items, V items, D model dimension.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cbert.errors import UserError
from cbert.model.cross_entropy import inner_logits, own_logits
from cbert.model.look_up import look_up

Array = jax.Array


def cumulative(counts: tuple[int, ...]) -> np.ndarray:
    """The running sum of (count + 1), `int32 [V]`, in proportion to which items are drawn.

    Raises:
      UserError: the counts sum to more than an int32 holds.
    """
    total = np.cumsum(np.array(counts, np.int64) + 1)
    if total[-1] >= 2**31:
        raise UserError(
            "the schema's counts sum to 2**31 or more; set task.masked_item.sampled_items=0"
        )
    return total.astype(np.int32)


def draw(key: Array, cumulative: Array, number: int) -> Array:
    """S items `int32 [S]`, with replacement, in proportion to (count + 1)."""
    drawn = jax.random.randint(key, (number,), 0, cumulative[-1])
    return jnp.searchsorted(cumulative, drawn, side="right").astype(jnp.int32)


def log_expected(cumulative: Array, items: Array, number: int) -> Array:
    """The logarithm of the expected number of each item among `number` draws."""
    before = jnp.where(items > 0, cumulative[items - 1], 0)
    probability = (cumulative[items] - before).astype(jnp.float32) / cumulative[-1]
    return jnp.log(probability * number)


def sampled_cross_entropy(
    hidden: Array,
    table: Array,
    bias: Array,
    targets: Array,
    sampled: Array,
    cumulative: Array,
    find: Callable = look_up,
) -> Array:
    """Cross-entropy over the target and a sample, the sampled logits lowered by log-Q.

    The target counts itself and a drawn item, if it is another one, exp(logit) / (S q): their
    sum is the full normalizer in expectation. Its logarithm is too small on average, less so
    the more items are drawn.

    Args:
      hidden: `float32 [Q, D]`, or bfloat16, for products of bfloat16 with float32 sums.
      table: `float32 [V, D]`.
      bias: `float32 [V]`.
      targets: `int32 [Q]`.
      sampled: `int32 [S]`, from `draw`, the same for all queries.
      cumulative: `int32 [V]`.
      find: Looks up rows: `look_up`, or `item_shards.look_up` where a device has only some.

    Returns:
      `float32 [Q]`, nats.
    """
    number = len(sampled)
    own_rows, table = find(table, targets)
    own_bias, bias = find(bias, targets)
    sampled_rows, _ = find(table, sampled)
    sampled_bias, _ = find(bias, sampled)
    own = own_logits(hidden, own_rows) + own_bias
    others = inner_logits(hidden, sampled_rows) + sampled_bias
    others = others - log_expected(cumulative, sampled, number)
    others = jnp.where(sampled == targets[:, None], -jnp.inf, others)
    return jnp.logaddexp(own, jax.nn.logsumexp(others, axis=1)) - own
