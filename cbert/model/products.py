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
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from cbert import parallel

Array = jax.Array


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
    d_x = multiply(gradient, y, not transposed)
    if transposed:
        d_y = multiply(gradient.swapaxes(-1, -2), x)
    else:
        d_y = multiply(x.swapaxes(-1, -2), gradient)
    return d_x.astype(x.dtype), d_y.astype(y.dtype)


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
    return multiply(gradient, table).astype(x.dtype), multiply(gradient.T, x)


row_products.defvjp(_row_products_forward, _row_products_backward)


@functools.partial(jax.jit, static_argnums=2)
def multiply(x: Array, y: Array, transposed: bool = False) -> Array:
    """x y, or x y^T where `y` is given transposed, `float32 [..., M, N]`; see `product`."""
    leading = tuple(range(x.ndim - 2))
    contracted = (x.ndim - 1,), (x.ndim - 1 if transposed else x.ndim - 2,)
    of_rows = lax.dot_general(
        _by_rows(x),
        _by_rows(y),
        (contracted, (leading, leading)),
        preferred_element_type=jnp.float32,
    )
    return _by_rows(of_rows)


def sum_rows(weights: Array, rows: Array) -> Array:
    """The sum of rows `bfloat16 [M, N]` by weights `bfloat16 [M]`, `float32 [N]`."""
    # One row of weights would be a product of vectors, which XLA computes in float32.
    return multiply(jnp.broadcast_to(weights, (4, len(weights))), rows)[0]


def sum_columns(columns: Array, weights: Array) -> Array:
    """The sum of columns `bfloat16 [M, N]` by weights `bfloat16 [N]`, `float32 [M]`."""
    return multiply(columns, jnp.broadcast_to(weights[:, None], (len(weights), 4)))[:, 0]


def _by_rows(x: Array) -> Array:
    if parallel.platform() != "cpu":
        return x
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
    return (multiply(x, kernel) + bias).astype(x.dtype), (x, kernel)


def _affine_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, kernel = saved
    d_x = multiply(gradient, kernel, True).astype(x.dtype)
    return d_x, multiply(x.T, gradient), sum_rows(jnp.ones(len(x), x.dtype), gradient)


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
    d_x = multiply(gradient.T, kernel, True).astype(x.dtype)
    return d_x, multiply(gradient, x).T, sum_columns(gradient, jnp.ones(len(x), x.dtype))


affine_columns.defvjp(_columns_forward, _columns_backward)
