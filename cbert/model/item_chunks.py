"""All items, a chunk at a time, and their products with hidden vectors.

Legend: V items, K items of a chunk, N rows, D model dimension.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cbert.model import products

Array = jax.Array

CHUNK = 4096


def chunk_size(vocabulary: int, chunk: int) -> int:
    """The items of equal chunks of at most `chunk`."""
    number = -(-vocabulary // chunk)
    return -(-vocabulary // number)


def chunks(vocabulary: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Chunks of equal size that cover all items, the last one overlapping where it must.

    Returns:
      Each chunk's start, and 1 for the items not yet counted in an earlier chunk, else 0.
    """
    covered = np.arange(-(-vocabulary // size)) * size
    starts = np.minimum(covered, vocabulary - size)
    not_counted = starts[:, None] + np.arange(size) >= covered[:, None]
    return starts, not_counted.astype(np.float32)


def part(table: Array, bias: Array, start: Array, size: int) -> tuple[Array, Array]:
    """The rows and biases of a chunk."""
    rows = lax.dynamic_slice_in_dim(table, start, size)
    return rows, lax.dynamic_slice_in_dim(bias, start, size)


def inner_products(x: Array, y: Array, precision: lax.Precision | None = None) -> Array:
    """x y^T, `float32 [..., N]`, for `y` `[N, D]`."""
    if products.are_fast(x.dtype):
        return products.multiply(x, y.astype(x.dtype), transposed=True)
    # With y.T, XLA on a CPU would transpose a copy of it at every call.
    over_width = (((x.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(x, y, over_width, precision, jnp.float32)
