"""Attention within short sets, fast on a CPU, with the examples on the last axis.

Legend: B examples, L positions, P query positions, D model dimension, H heads, E = D / H width
of a head.
"""

import functools
import operator
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from cbert.model import products
from cbert.model.config import ModelConfig
from cbert.model.layers import Array, kernel_init

TERMS = 32  # Sums of up to so many terms are written out.


class TransposedDense(nn.Module):
    """A dense layer whose output is transposed: `[B, L, D]` to `[features, L B]`."""

    config: ModelConfig
    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.swapaxes(0, 1).reshape(-1, x.shape[-1])
        shape = x.shape[1], self.features
        kernel = self.param("kernel", kernel_init(self.config), shape)
        bias = self.param("bias", nn.initializers.zeros, shape[1:])
        if products.are_fast(jnp.dtype(self.config.dtype)):
            return products.affine_columns(x.astype(jnp.bfloat16), kernel, bias)
        x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.config.dtype)
        return lax.dot_general(kernel, x, (((0,), (1,)), ((), ()))) + bias[:, None]


@jax.custom_vjp
def attend(query: Array, key_value: Array, mask: Array, bias: Array | None = None) -> Array:
    """Scaled dot-product attention, with a backward pass of its own.

    A set has too few positions for a matrix product of its own to pay, so short sums are
    written out, and each becomes one loop over the batch.

    Args:
      query: `[H, E, P, B]`.
      key_value: `[2, H, E, L, B]`.
      mask: `bool [P, L, B]`, or broadcastable to it.
      bias: `[H, P, L, B]`, or 1 in place of some of them, or None.

    Returns:
      `[H, E, P, B]`.
    """
    return _forward(query, key_value, mask, bias)[0]


@jax.jit
def _forward(
    query: Array, key_value: Array, mask: Array, bias: Array | None
) -> tuple[Array, tuple]:
    logits = _dots(query, key_value[0]) * query.shape[1] ** -0.5
    if bias is not None:
        logits = logits + bias
    logits = jnp.where(mask, logits, -1e9)
    weights = jnp.exp(logits - logits.max(axis=2, keepdims=True))
    weights = (weights / weights.sum(axis=2, keepdims=True)).astype(query.dtype)
    return _over_keys(weights, key_value[1]), (query, key_value, weights, bias)


@jax.jit
def _backward(saved: tuple, gradient: Array) -> tuple[Array, Array, None, Array | None]:
    query, (key, value), weights, bias = saved
    weighted = weights * _dots(gradient, value)
    d_logits = weighted - weights * weighted.sum(axis=2, keepdims=True)
    d_bias = None
    if bias is not None:
        d_bias = _sum_to(d_logits, bias.shape).astype(bias.dtype)
    d_logits = (d_logits * query.shape[1] ** -0.5).astype(query.dtype)
    d_key, d_value = _over_queries(d_logits, query), _over_queries(weights, gradient)
    return _over_keys(d_logits, key), jnp.stack([d_key, d_value]), None, d_bias


attend.defvjp(_forward, _backward)


def _sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Sums the axes along which an array of that shape was broadcast."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return x.sum(axis=axes, keepdims=True)


def _sum(terms: Iterable[tuple[Array, Array]]) -> Array:
    """The sum of the products of some pairs, added in float32."""
    products = (a.astype(jnp.float32) * b.astype(jnp.float32) for a, b in terms)
    return functools.reduce(operator.add, products)


def _dots(query: Array, key: Array) -> Array:
    """Each query `[H, E, P, B]` times each key `[H, E, L, B]`: `float32 [H, P, L, B]`."""
    width = query.shape[1]
    if max(width, key.shape[2]) > TERMS:
        return jnp.einsum("heqb,hekb->hqkb", query, key, preferred_element_type=jnp.float32)
    return _sum((query[:, e, :, None], key[:, e, None]) for e in range(width))


def _over_keys(weights: Array, values: Array) -> Array:
    """The sum of values `[H, E, L, B]` for each query, `[H, E, P, B]`."""
    length = values.shape[2]
    if length > TERMS:
        return jnp.einsum("hqkb,hekb->heqb", weights, values)
    read = _sum((weights[:, None, :, k], values[:, :, k, None]) for k in range(length))
    return read.astype(values.dtype)


def _over_queries(weights: Array, values: Array) -> Array:
    """The sum of values `[H, E, P, B]` for each key, `[H, E, L, B]`."""
    length = values.shape[2]
    if length > TERMS:
        return jnp.einsum("hqkb,heqb->hekb", weights, values)
    read = _sum((weights[:, None, q], values[:, :, q, None]) for q in range(length))
    return read.astype(values.dtype)
