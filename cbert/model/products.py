"""Products of bfloat16 matrices whose sums are float32.

Their backward passes round the gradient that comes in to bfloat16, so that they consist of such
products, too; those that JAX makes multiply by it in float32.

A CPU may have units or instructions for just these (AMX on Intel's, AVX-512 BF16 on AMD's too).
XLA takes them where the result is float32 and both matrices are stored row by row, and
otherwise computes in float32, two to six times as slowly. So the backward pass transposes what
it needs transposed.

Legend: M, K, N rows and columns of matrices.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from cbert import parallel

Array = jax.Array

# The most parts of the rows that a GPU sums at once, and how many rows of bfloat16 it sums by a
# product, which takes a kernel less.
PARTS, FEW = 32, 4096
_LEFT_TO_LIBRARY = contextvars.ContextVar("_LEFT_TO_LIBRARY", default=False)


def are_fast(dtype: jnp.dtype) -> bool:
    """Returns whether products of this type should be made here, and not by the library."""
    return dtype == jnp.bfloat16 and not _LEFT_TO_LIBRARY.get()


@contextlib.contextmanager
def left_to_library() -> Iterator[None]:
    """What is traced inside has no constraints on layouts, which a file may not hold."""
    token = _LEFT_TO_LIBRARY.set(True)
    try:
        yield
    finally:
        _LEFT_TO_LIBRARY.reset(token)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(x: Array, y: Array, transposed: bool = False) -> Array:
    """The product of `multiply` with a backward pass of the same kind.

    Args:
      x: `bfloat16 [..., M, K]`.
      y: `bfloat16 [..., K, N]`, with the same leading axes; transposed it is `[..., N, K]`.
      transposed: Whether it is.

    Returns:
      `float32 [..., M, N]`.
    """
    return multiply(x, y, transposed)


def _forward(x: Array, y: Array, transposed: bool) -> tuple[Array, tuple[Array, Array]]:
    return multiply(x, y, transposed), (x, y)


def _backward(
    transposed: bool, saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    x, y = saved
    gradient = gradient.astype(x.dtype)
    d_x = rounded(gradient, y, not transposed)
    if transposed:
        return d_x, rounded(gradient.swapaxes(-1, -2), x)
    return d_x, rounded(x.swapaxes(-1, -2), gradient)


product.defvjp(_forward, _backward)


@jax.custom_vjp
def row_products(x: Array, table: Array) -> Array:
    """x table^T, the products of vectors with the rows of a table.

    Args:
      x: `bfloat16 [M, K]`.
      table: `float32 [N, K]`. Its gradient is a float32 sum that is not rounded.

    Returns:
      `float32 [M, N]`.
    """
    return _row_products_forward(x, table)[0]


def _row_products_forward(x: Array, table: Array) -> tuple[Array, tuple[Array, Array]]:
    table = table.astype(x.dtype)
    return multiply(x, table, True), (x, table)


def _row_products_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, table = saved
    gradient = gradient.astype(x.dtype)
    return rounded(gradient, table), multiply(gradient.T, x)


row_products.defvjp(_row_products_forward, _row_products_backward)


def multiply(x: Array, y: Array, transposed: bool = False, dtype: str = "float32") -> Array:
    """x y, or x y^T where `y` is given transposed, `dtype [..., M, N]`; see `product`."""
    return _multiply(x, y, transposed, dtype, parallel.platform() == "cpu")


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _multiply(x: Array, y: Array, transposed: bool, dtype: str, by_rows: bool) -> Array:
    """`multiply`, with all matrices stored row by row or as XLA chooses."""
    leading = tuple(range(x.ndim - 2))
    contracted = (x.ndim - 1,), (x.ndim - 1 if transposed else x.ndim - 2,)
    if by_rows:
        x, y = _by_rows(x), _by_rows(y)
    found = lax.dot_general(
        x, y, (contracted, (leading, leading)), preferred_element_type=dtype
    )
    return _by_rows(found) if by_rows else found


def rounded(x: Array, y: Array, transposed: bool = False) -> Array:
    """`multiply` with a result of bfloat16, whose sums are float32 all the same."""
    if parallel.platform() == "cpu":
        return multiply(x, y, transposed).astype(x.dtype)
    return multiply(x, y, transposed, x.dtype.name)


def sum_rows(x: Array) -> Array:
    """The sum of rows `[M, N]`, `float32 [N]`."""
    if parallel.platform() == "tpu":
        return x.sum(axis=0, dtype=jnp.float32)
    by_product = x.dtype == jnp.bfloat16 and len(x) <= FEW
    if parallel.platform() == "gpu" and not by_product:
        # In one pass a GPU would have a part of it sum all rows, and the others wait.
        parts = x.reshape(math.gcd(len(x), PARTS), -1, x.shape[1]).sum(1, dtype=jnp.float32)
        return lax.optimization_barrier(parts).sum(axis=0)
    # On a CPU a product takes less time than a sum; one row of ones would be no product.
    ones = jnp.ones((4, len(x)), x.dtype)
    if x.dtype == jnp.bfloat16:
        return multiply(ones, x)[0]
    return jnp.matmul(ones, x, precision=lax.Precision.HIGHEST)[0]


def sum_columns(columns: Array, weights: Array) -> Array:
    """The sum of columns `bfloat16 [M, N]` by weights `bfloat16 [N]`, `float32 [M]`."""
    return multiply(columns, jnp.broadcast_to(weights[:, None], (len(weights), 4)))[:, 0]


def _by_rows(x: Array) -> Array:
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


@jax.custom_vjp
def affine(x: Array, kernel: Array, bias: Array) -> Array:
    """x kernel + bias, with products of bfloat16.

    Args:
      x: `bfloat16 [M, K]`.
      kernel: `float32 [K, N]`. Its gradient is a float32 sum that is not rounded.
      bias: `float32 [N]`.

    Returns:
      `bfloat16 [M, N]`.
    """
    return _affine_forward(x, kernel, bias)[0]


def _affine_forward(x: Array, kernel: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    kernel = kernel.astype(x.dtype)
    if parallel.platform() == "cpu":
        return (multiply(x, kernel) + bias).astype(x.dtype), (x, kernel)
    # The library adds a bias of the same type before it rounds.
    return rounded(x, kernel) + bias.astype(x.dtype), (x, kernel)


def _affine_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, kernel = saved
    return rounded(gradient, kernel, True), multiply(x.T, gradient), sum_rows(gradient)


affine.defvjp(_affine_forward, _affine_backward)


@jax.custom_vjp
def affine_columns(x: Array, kernel: Array, bias: Array) -> Array:
    """The transposed `affine`, `bfloat16 [N, M]`."""
    return _columns_forward(x, kernel, bias)[0]


def _columns_forward(x: Array, kernel: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    kernel = kernel.astype(x.dtype)
    return (multiply(kernel.T, x, True) + bias[:, None]).astype(x.dtype), (x, kernel)


def _columns_backward(
    saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array, Array]:
    x, kernel = saved
    d_x = rounded(gradient.T, kernel, True)
    return d_x, multiply(gradient, x).T, sum_columns(gradient, jnp.ones(len(x), x.dtype))


affine_columns.defvjp(_columns_forward, _columns_backward)
