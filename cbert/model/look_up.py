"""Rows of tables, whose gradients are sums over all places that use a row.

Legend: B examples, L positions, P query positions, V rows of a table, D width of a row, N rows
that are summed, M sums.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from cbert import parallel

Array = jax.Array

# The most products of a table's entries and codes that a reduction sums, and the most pairs of
# its rows and codes for a gradient without a scatter.
MOST_COMPARED, MOST_PAIRS = 2**26, 2**27
# The most codes that are compared with each other at once.
PART = 2048
# So few entries of rows are summed by a product of float32, which takes fewer kernels.
FEW = 2**18


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
    sums = _sums(equal, rows)
    # Without the barrier every entry that is written would ask again which codes are first.
    codes = lax.optimization_barrier(jnp.where(is_first, codes, len(table) + numbers))
    return table.at[codes].add(sums, mode="drop", unique_indices=True)


def _sums(chosen: Array, rows: Array) -> Array:
    """The sums of the rows `[N, ...]` that `bool [M, N]` chooses, `float32 [M, ...]`."""
    entries = rows.reshape(len(rows), -1).astype(jnp.float32)
    if entries.size <= FEW:
        sums = jnp.matmul(chosen.astype(jnp.float32), entries, precision="highest")
        return sums.reshape(-1, *rows.shape[1:])
    # A float32 is the sum of three bfloat16, whose products take a fraction of the time.
    parts = []
    for _ in range(1 if rows.dtype == jnp.bfloat16 else 3):
        parts.append(lax.reduce_precision(entries, 8, 7))
        entries = entries - parts[-1]
    together = jnp.concatenate(parts, axis=1).astype(jnp.bfloat16)
    sums = jnp.matmul(chosen.astype(jnp.bfloat16), together, preferred_element_type=jnp.float32)
    sums = sums.reshape(len(chosen), len(parts), -1).sum(axis=1)
    return sums.reshape(-1, *rows.shape[1:])


def small_look_up(table: Array, codes: Array) -> Array:
    """`table[codes]` of a table `[V, D]` with few rows, see `_chosen`."""
    pairs = codes.size * len(table)
    if parallel.platform() != "gpu" or pairs > MOST_PAIRS:
        return table[codes]
    return _chosen(table, codes, pairs * table.shape[1] > MOST_COMPARED)


def at_positions(x: Array, positions: Array) -> Array:
    """x `[B, L, D]` at positions `int32 [B, P]`: `[B, P, D]`, see `_chosen`."""
    pairs = positions.size * x.shape[1]
    if parallel.platform() != "gpu" or pairs > MOST_PAIRS:
        return jnp.take_along_axis(x, positions[..., None], axis=1)
    choose = functools.partial(_chosen, multiplies=pairs * x.shape[2] > MOST_COMPARED)
    return jax.vmap(choose)(x, positions)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _chosen(table: Array, codes: Array, multiplies: bool) -> Array:
    """`table[codes]`, whose gradient compares every code with every row of the table.

    It sums in one reduction or, where that is long, in a product. A scatter on a GPU adds in an
    order that differs from run to run, or sorts the codes first, in some ten kernels.
    """
    return table[codes]


def _chosen_forward(
    table: Array, codes: Array, multiplies: bool
) -> tuple[Array, tuple[Array, Array]]:
    return table[codes], (table, codes)


def _chosen_backward(
    multiplies: bool, saved: tuple[Array, Array], d_rows: Array
) -> tuple[Array, None]:
    table, codes = saved
    is_row = jnp.arange(len(table))[:, None] == codes.reshape(-1)
    of_codes = d_rows.reshape(-1, table.shape[1])
    if multiplies:
        return _sums(is_row, of_codes).astype(table.dtype), None
    return jnp.where(is_row[..., None], of_codes, 0).sum(axis=1), None


_chosen.defvjp(_chosen_forward, _chosen_backward)
