"""What stands for an example: a vector of its hidden states, or one for every token.

Legend: B examples, L positions, D model dimension.
"""

import jax.numpy as jnp

from cbert.model.context import mean_pool
from cbert.model.layers import Array

FIRST_TOKEN, MEAN, EVERY_TOKEN = "cls", "mean", "tokens"
POOLINGS = (FIRST_TOKEN, MEAN, EVERY_TOKEN)


def pool(x: Array, mask: Array, pooling: str) -> Array:
    """Hidden states `[B, L, D]` to `float32 [B, D]`, or `[B, L, D]` for every token.

    The mean is over all tokens, of texts [CLS] and [SEP] included; for `cls`, x may hold the
    first position alone.
    """
    x = x.astype(jnp.float32)
    if pooling == FIRST_TOKEN:
        return x[:, 0]
    return mean_pool(x, mask) if pooling == MEAN else x
