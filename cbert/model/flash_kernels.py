"""The programs of `flash_attention.py`: each works on one block of one example and head.

Legend: B examples, L positions, P query positions, H heads, E width of a head, R rows and C
columns of a block of weights.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from cbert.model import hashing

Array = jax.Array

# The logit of a key that the mask hides: its weight is 0 beside any other's.
HIDDEN = -1e5
# The fewest rows and columns that a GPU's units for matrix products take.
FEWEST = 16


@dataclasses.dataclass(frozen=True)
class Blocks:
    """What a kernel knows when it is compiled.

    Attributes:
      positions: P.
      length: L.
      heads: H.
      rate: The fraction of weights that is dropped.
      most: The most rows and columns of a block.
    """

    positions: int
    length: int
    heads: int
    rate: float
    most: int

    @property
    def rows(self) -> int:
        """R."""
        return max(FEWEST, min(self.most, pl.next_power_of_2(self.positions)))

    @property
    def columns(self) -> int:
        """C."""
        return max(FEWEST, min(self.most, pl.next_power_of_2(self.length)))

    @property
    def down(self) -> int:
        """The blocks that the queries make."""
        return pl.cdiv(self.positions, self.rows)

    @property
    def across(self) -> int:
        """The blocks that the keys make."""
        return pl.cdiv(self.length, self.columns)

    @property
    def scale(self) -> float:
        """What weights that are not dropped are multiplied by."""
        return 1 / (1 - self.rate)


class Inputs(NamedTuple):
    """What both programs read.

    Attributes:
      query: `[P, E]`.
      key_value: `[L, 2, E]`, keys and values.
      shown: `int32 [L]`, 0 where a key is hidden.
      hash_keys: `uint32 [2]`, of what is dropped, see `hashing.keys`.
    """

    query: Any
    key_value: Any
    shown: Any
    hash_keys: Any


def _load(ref: Any, start: Any, size: int, *part: int) -> Array:
    """Some positions of an array: `[size, E]`, or `[size]`, 0 beyond the last position."""
    inside = start + jnp.arange(size) < ref.shape[0]
    where = ref.at[(pl.ds(start, size), *map(jnp.int32, part), *_rest(ref))]
    return triton.load(where, mask=_spread(inside, ref), other=0)


def _store(ref: Any, start: Any, values: Array, *part: int) -> None:
    """Writes some positions of an array, but for those beyond the last."""
    inside = start + jnp.arange(len(values)) < ref.shape[0]
    where = ref.at[(pl.ds(start, len(values)), *map(jnp.int32, part), *_rest(ref))]
    triton.store(where, values.astype(ref.dtype), mask=_spread(inside, ref))


def _rest(ref: Any) -> tuple[slice, ...]:
    return (slice(None),) if ref.ndim > 1 else ()


def _spread(inside: Array, ref: Any) -> Array:
    """`[size]` as the mask of what is read or written."""
    if ref.ndim == 1:
        return inside
    return jnp.broadcast_to(inside[:, None], (len(inside), ref.shape[-1]))


class _Keys(NamedTuple):
    """A block of keys `[C, E]` and values `[C, E]`, what is added to their logits `[C]`, and
    the number of the first."""

    key: Array
    value: Array
    added: Array
    column: Any


def _load_keys(blocks: Blocks, inputs: Inputs, column: Any) -> _Keys:
    shown = _load(inputs.shown, column, blocks.columns)
    added = jnp.where(shown > 0, 0.0, HIDDEN)
    if blocks.length % blocks.columns:
        inside = column + jnp.arange(blocks.columns) < blocks.length
        added = jnp.where(inside, added, -jnp.inf)
    key, value = (_load(inputs.key_value, column, blocks.columns, part) for part in (0, 1))
    return _Keys(key, value, added, column)


def _logits(query: Array, keys: _Keys) -> Array:
    """The masked logits of a block, to the base of 2, `float32 [R, C]`."""
    scale = math.log2(math.e) * query.shape[-1] ** -0.5
    return triton.dot(query, keys.key.T) * scale + keys.added[None]


def _row_hashes(blocks: Blocks, hash_keys: Any) -> Callable[[Any], Array | None]:
    """From a block's first row to its rows' hashes, `uint32 [R]`, or None without dropout."""
    if not blocks.rate:
        return lambda row: None
    head = pl.program_id(0) * blocks.heads + pl.program_id(1)
    first, key, seed = head * blocks.positions, hash_keys[0], hash_keys[1]

    def at(row: Any) -> Array:
        rows = first + row + jnp.arange(blocks.rows)
        return hashing.hashes(rows.astype(jnp.uint32), key, seed)

    return at


def _kept(blocks: Blocks, row_hashes: Array, column: Any) -> Array:
    """Which weights of a block are not dropped, `bool [R, C]`."""
    columns = (column + jnp.arange(blocks.columns)).astype(jnp.uint32)
    return hashing.kept_in_rows(row_hashes, columns, blocks.rate)


def forward(blocks: Blocks, inputs: Inputs, read_ref: Any, sums_ref: Any) -> None:
    """Reads all keys for a block of queries."""
    row = pl.program_id(2) * blocks.rows
    query = _load(inputs.query, row, blocks.rows)
    row_hashes = _row_hashes(blocks, inputs.hash_keys)(row)

    def add(number: Any, carry: tuple) -> tuple:
        read, highest, total = carry
        keys = _load_keys(blocks, inputs, number * blocks.columns)
        logits = _logits(query, keys)
        new = jnp.maximum(highest, logits.max(axis=1))
        shrink, weights = jnp.exp2(highest - new), jnp.exp2(logits - new[:, None])
        total = total * shrink + weights.sum(axis=1)
        if row_hashes is not None:
            weights = jnp.where(_kept(blocks, row_hashes, keys.column), weights, 0.0)
        read *= shrink[:, None]
        read += triton.dot(weights.astype(keys.value.dtype), keys.value)
        return read, new, total

    rows = blocks.rows
    none = jnp.zeros((rows, query.shape[1])), jnp.full(rows, -jnp.inf), jnp.zeros(rows)
    read, highest, total = lax.fori_loop(0, blocks.across, add, none)
    _store(read_ref, row, read * (blocks.scale / total)[:, None])
    _store(sums_ref, row, highest + jnp.log2(total))


class _Queries(NamedTuple):
    """A block of queries `[R, E]`, the gradient of what they read `[R, E]` and its product with
    that, the logarithms of their sums, and what the hash of their rows begins with, `[R]`."""

    query: Array
    gradient: Array
    along: Array
    log_sums: Array
    row_hashes: Array | None


def _meet(blocks: Blocks, queries: _Queries, keys: _Keys) -> tuple[Array, Array]:
    """The weights that values were read by and the gradient of logits, without their scales."""
    weights = read_by = jnp.exp2(_logits(queries.query, keys) - queries.log_sums[:, None])
    d_weights = triton.dot(queries.gradient, keys.value.T)
    if queries.row_hashes is not None:
        kept = _kept(blocks, queries.row_hashes, keys.column)
        read_by = jnp.where(kept, weights, 0.0)
        d_weights = jnp.where(kept, d_weights * blocks.scale, 0.0)
    d_logits = weights * (d_weights - queries.along[:, None])
    return read_by.astype(keys.key.dtype), d_logits.astype(keys.key.dtype)


def backward(
    blocks: Blocks,
    inputs: Inputs,
    read_ref: Any,
    gradient_ref: Any,
    sums_ref: Any,
    d_query_ref: Any,
    d_key_value_ref: Any,
) -> None:
    """The gradients of a block of keys and values, and of a block of queries."""
    row_hashes = _row_hashes(blocks, inputs.hash_keys)
    logit_scale = inputs.query.shape[-1] ** -0.5

    def load_queries(row: Any) -> _Queries:
        refs = inputs.query, gradient_ref, read_ref, sums_ref
        query, gradient, read, log_sums = (_load(ref, row, blocks.rows) for ref in refs)
        along = (gradient.astype(jnp.float32) * read.astype(jnp.float32)).sum(axis=1)
        return _Queries(query, gradient, along, log_sums, row_hashes(row))

    def add_to_keys(number: Any, carry: tuple) -> tuple:
        queries = load_queries(number * blocks.rows)
        read_by, d_logits = _meet(blocks, queries, keys)
        d_key = carry[0] + triton.dot(d_logits.T, queries.query)
        return d_key, carry[1] + triton.dot(read_by.T, queries.gradient)

    def add_to_query(number: Any, d_query: Array) -> Array:
        keys = _load_keys(blocks, inputs, number * blocks.columns)
        return d_query + triton.dot(_meet(blocks, queries, keys)[1], keys.key)

    block = pl.program_id(2)
    row, column = block * blocks.rows, block * blocks.columns
    queries = load_queries(row)
    keys = _load_keys(blocks, inputs, column)
    if blocks.down == blocks.across == 1:
        read_by, d_logits = _meet(blocks, queries, keys)
        d_query = triton.dot(d_logits, keys.key)
        d_key = triton.dot(d_logits.T, queries.query)
        d_value = triton.dot(read_by.T, queries.gradient)
    else:
        none = jnp.zeros(keys.key.shape)
        d_key, d_value = lax.fori_loop(0, blocks.down, add_to_keys, (none, none))
        none = jnp.zeros(queries.query.shape)
        d_query = lax.fori_loop(0, blocks.across, add_to_query, none)
    _store(d_query_ref, row, d_query * logit_scale)
    _store(d_key_value_ref, column, d_key * logit_scale, 0)
    _store(d_key_value_ref, column, d_value * blocks.scale, 1)
