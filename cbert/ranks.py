"""The ranks of targets among all items.

Legend: Q queries, V candidates.
"""

import jax
import jax.numpy as jnp

Array = jax.Array


def count_ahead(logits: Array, own: Array, other: Array) -> Array:
    """The number of items that are ranked ahead of the target; its rank is one more.

    Ties count against the target, so that equal logits for all items give the last rank, and so
    do logits that are no numbers.

    Args:
      logits: `[Q, V]`, of each query for each item.
      own: `[Q]`, of each query for its target, or the least that counts as equal to it.
      other: `bool [Q, V]`, False for the target and for items that do not count.

    Returns:
      `int32 [Q]`.
    """
    ahead = ~(logits < own[:, None]) & other
    # A CPU adds float32 faster, which holds every number up to 2^24.
    exact = jnp.float32 if ahead.shape[1] <= 2**24 else jnp.int32
    return ahead.astype(exact).sum(axis=1).astype(jnp.int32)
