"""Rows of tables, whose gradients are sums over all places that use a row."""

import jax
import jax.numpy as jnp

from cbert import parallel

Array = jax.Array

# The most products of a table's entries and codes for a gradient without a scatter.
MOST_COMPARED = 2**26


@jax.custom_vjp
def look_up(table: Array, codes: Array) -> tuple[Array, Array]:
    """`table[codes]`, and the table again for whatever else uses it.

    The gradient of that second result comes back first, and the rows' gradients are added into
    it, so that there is never another gradient of the table's size.
    """
    return table[codes], table


def _look_up_forward(table: Array, codes: Array) -> tuple[tuple[Array, Array], Array]:
    return look_up(table, codes), codes


def _look_up_backward(codes: Array, gradients: tuple[Array, Array]) -> tuple[Array, None]:
    d_rows, d_table = gradients
    return d_table.at[codes].add(d_rows), None


look_up.defvjp(_look_up_forward, _look_up_backward)


@jax.custom_vjp
def small_look_up(table: Array, codes: Array) -> Array:
    """`table[codes]` of a table `[V, D]` with few rows.

    Unless on a CPU, a small gradient is made without a scatter, see `_sum_equal`.
    """
    return table[codes]


def _small_forward(table: Array, codes: Array) -> tuple[Array, tuple[Array, Array]]:
    return table[codes], (table, codes)


def _small_backward(saved: tuple[Array, Array], d_rows: Array) -> tuple[Array, None]:
    table, codes = saved
    if _scatters(codes.size * table.size):
        return jnp.zeros_like(table).at[codes].add(d_rows), None
    return _sum_equal(d_rows.reshape(-1, table.shape[1]), codes.reshape(-1), len(table)), None


small_look_up.defvjp(_small_forward, _small_backward)


@jax.custom_vjp
def at_positions(x: Array, positions: Array) -> Array:
    """The vectors of x `[B, L, D]` at positions `int32 [B, P]`: `[B, P, D]`.

    Its gradient is made as that of `small_look_up`.
    """
    return jnp.take_along_axis(x, positions[..., None], axis=1)


def _at_forward(x: Array, positions: Array) -> tuple[Array, tuple[Array, Array]]:
    return at_positions(x, positions), (x, positions)


def _at_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    x, positions = saved
    if _scatters(x.size * positions.shape[1]):
        rows = jnp.arange(len(x))[:, None]
        return jnp.zeros_like(x).at[rows, positions].add(gradient), None
    sum_equal = jax.vmap(_sum_equal, in_axes=(0, 0, None))
    return sum_equal(gradient, positions, x.shape[1]), None


at_positions.defvjp(_at_forward, _at_backward)


def _scatters(products: int) -> bool:
    return parallel.platform() == "cpu" or products > MOST_COMPARED


def _sum_equal(vectors: Array, codes: Array, count: int) -> Array:
    """For each code below `count` the sum of the vectors `[N, D]` that have it, `[count, D]`.

    Every vector is compared with every code, in one reduction. A scatter on a GPU adds in an
    order that differs from run to run, or sorts the codes first, in some ten programs.
    """
    is_equal = jnp.arange(count)[:, None] == codes
    return jnp.where(is_equal[..., None], vectors, 0).sum(axis=1)
