"""Rows of tables, whose gradients are sums over all places that use a row."""

import jax
import jax.numpy as jnp
from jax import lax

from cbert import parallel

Array = jax.Array

# The most products of a table's entries and codes for a gradient without a scatter.
MOST_COMPARED = 2**26
# The most codes that are compared with each other at once.
PART = 2048


@jax.custom_vjp
def look_up(table: Array, codes: Array) -> tuple[Array, Array]:
    """`table[codes]`, codes from 0 on, and the table again for whatever else uses it.

    The gradient of that second result comes back first, and the rows' gradients are added into
    it, so that there is never another gradient of the table's size.
    """
    return table[codes], table


def _look_up_forward(table: Array, codes: Array) -> tuple[tuple[Array, Array], Array]:
    return look_up(table, codes), codes


def _look_up_backward(codes: Array, gradients: tuple[Array, Array]) -> tuple[Array, None]:
    d_rows, d_table = gradients
    return _add_rows(d_table, codes, d_rows), None


look_up.defvjp(_look_up_forward, _look_up_backward)


def _add_rows(table: Array, codes: Array, rows: Array) -> Array:
    """`table.at[codes].add(rows)`, on a GPU in parts, in each of which codes are compared."""
    if parallel.platform() != "gpu":
        return table.at[codes].add(rows)
    codes = codes.reshape(-1)
    rows = rows.reshape(len(codes), *table.shape[1:])
    if len(codes) <= PART:
        return _add_each_once(table, codes, rows)
    # The last part is filled up with codes past the table.
    missing = -len(codes) % PART
    codes = jnp.pad(codes, (0, missing), constant_values=len(table))
    rows = jnp.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
    parts = codes.reshape(-1, PART), rows.reshape(-1, PART, *table.shape[1:])
    return lax.scan(lambda sums, part: (_add_each_once(sums, *part), None), table, parts)[0]


def _add_each_once(table: Array, codes: Array, rows: Array) -> Array:
    """Adds rows whose codes may be equal, and writes a row of the table once at most.

    A product with the matrix of which codes are equal sums their rows. The first of them is
    written, and the others lie past the table.
    """
    numbers = jnp.arange(len(codes))
    equal = codes[:, None] == codes
    is_first = ~(equal & (numbers < numbers[:, None])).any(axis=1)
    sums = jnp.matmul(equal.astype(rows.dtype), rows, precision="highest")
    # Without the barrier every entry that is written would ask again which codes are first.
    codes = lax.optimization_barrier(jnp.where(is_first, codes, len(table) + numbers))
    return table.at[codes].add(sums, mode="drop", unique_indices=True)


def small_look_up(table: Array, codes: Array) -> Array:
    """`table[codes]` of a table `[V, D]` with few rows, see `_compares`."""
    if _compares(codes.size * table.size):
        return _compared_rows(table, codes)
    return table[codes]


def at_positions(x: Array, positions: Array) -> Array:
    """x `[B, L, D]` at positions `int32 [B, P]`: `[B, P, D]`, see `_compares`."""
    if _compares(x.size * positions.shape[1]):
        return jax.vmap(_compared_rows)(x, positions)
    return jnp.take_along_axis(x, positions[..., None], axis=1)


def _compares(products: int) -> bool:
    """Whether a gradient is made by comparing every code with every row, in one reduction.

    A scatter on a GPU adds in an order that differs from run to run, or sorts the codes first,
    in some ten kernels.
    """
    return parallel.platform() == "gpu" and products <= MOST_COMPARED


@jax.custom_vjp
def _compared_rows(table: Array, codes: Array) -> Array:
    return table[codes]


def _compared_forward(table: Array, codes: Array) -> tuple[Array, tuple[Array, Array]]:
    return table[codes], (table, codes)


def _compared_backward(saved: tuple[Array, Array], d_rows: Array) -> tuple[Array, None]:
    table, codes = saved
    is_row = jnp.arange(len(table))[:, None] == codes.reshape(-1)
    of_codes = d_rows.reshape(-1, table.shape[1])
    return jnp.where(is_row[..., None], of_codes, 0).sum(axis=1), None


_compared_rows.defvjp(_compared_forward, _compared_backward)
