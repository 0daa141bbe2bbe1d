"""Attention on a GPU whose weights never leave a program's registers, with dropout.

The method is that of FlashAttention-2 (Dao, arXiv 2307.08691, section 3.1): a program reads a
block of queries and takes the keys in turn, and the backward pass makes the weights again from
the logarithms of their sums. Queries, keys and values stay as the dense layers wrote them.

Logarithms are to the base of 2, because a GPU has an instruction for powers of 2.

Legend: B examples, L positions, P query positions, H heads, E width of a head.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from cbert.model import flash_kernels

Array = jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def attend(
    query: Array,
    key_value: Array,
    shown: Array,
    hash_keys: Array,
    rate: float = 0.0,
    interpret: bool = False,
) -> Array:
    """The sums of values by the dropped softmax of the scaled products.

    Args:
      query: `bfloat16 [B, P, H, E]`, E a power of 2 and at least 16.
      key_value: `bfloat16 [B, L, 2, H, E]`, keys and values.
      shown: `bool [B, L]`, False where a key is hidden.
      hash_keys: `uint32 [2]`, those of `hashing.keys`, which say what is dropped.
      rate: The fraction of weights that is dropped.
      interpret: Whether XLA runs the kernel, as it can on a CPU.

    Returns:
      `bfloat16 [B, P, H, E]`.
    """
    return _forward(query, key_value, shown, hash_keys, rate, interpret)[0]


def _forward(
    query: Array,
    key_value: Array,
    shown: Array,
    hash_keys: Array,
    rate: float,
    interpret: bool,
) -> tuple[Array, tuple]:
    examples, positions, heads, _ = query.shape
    inputs = flash_kernels.Inputs(query, key_value, shown.astype(jnp.int32), hash_keys)
    blocks = flash_kernels.Blocks(positions, key_value.shape[1], heads, rate, 64)
    sums = jax.ShapeDtypeStruct((examples, heads, positions), jnp.float32)
    made = jax.ShapeDtypeStruct(query.shape, query.dtype), sums
    read, log_sums = pl.pallas_call(
        functools.partial(flash_kernels.forward, blocks),
        grid=(examples, heads, blocks.down),
        in_specs=_specs((inputs,)),
        out_specs=_specs(made),
        out_shape=made,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name="attention",
    )(inputs)
    return read, (inputs, read, log_sums)


def _backward(
    rate: float, interpret: bool, saved: tuple, gradient: Array
) -> tuple[Array, Array, np.ndarray, np.ndarray]:
    inputs, read, log_sums = saved
    examples, positions, heads, _ = inputs.query.shape
    length = inputs.key_value.shape[1]
    # Where one block holds all weights, they are made once.
    most = 128 if max(positions, length) <= 128 else 64
    blocks = flash_kernels.Blocks(positions, length, heads, rate, most)
    given = inputs, read, gradient, log_sums
    made = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs[:2])
    d_query, d_key_value = pl.pallas_call(
        functools.partial(flash_kernels.backward, blocks),
        grid=(examples, heads, max(blocks.down, blocks.across)),
        in_specs=_specs(given),
        out_specs=_specs(made),
        out_shape=made,
        compiler_params=triton.CompilerParams(
            num_warps=8 if blocks.rows * blocks.columns > 64**2 else 4, num_stages=2
        ),
        interpret=interpret,
        name="attention_backward",
    )(*given)
    none = (np.zeros(x.shape, jax.dtypes.float0) for x in (inputs.shown, inputs.hash_keys))
    return d_query, d_key_value, *none


attend.defvjp(_forward, _backward)

# By the number of its axes, which of an array's axes are the first and the second of the grid,
# examples and heads: the keys of the hash are `[2]`, the mask `[B, L]`, sums `[B, H, P]`,
# queries `[B, P, H, E]`, and keys with values `[B, L, 2, H, E]`.
AXES: dict[int, dict[int, int]] = {
    1: {},
    2: {0: 0},
    3: {0: 0, 1: 1},
    4: {0: 0, 2: 1},
    5: {0: 0, 3: 1},
}


def _specs(arrays: Any) -> Any:
    """What a program sees of each array of a tree: all of it for its example and head."""

    def spec(array: Any) -> pl.BlockSpec:
        grid_axes = AXES[array.ndim]

        def place(*program: Any) -> tuple[Any, ...]:
            return tuple(
                program[grid_axes[axis]] if axis in grid_axes else 0
                for axis in range(array.ndim)
            )

        seen = (None if axis in grid_axes else size for axis, size in enumerate(array.shape))
        return pl.BlockSpec(tuple(seen), place)

    return jax.tree.map(spec, arrays)
