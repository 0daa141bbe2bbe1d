"""Self-attention, in a form that is fast for short sets.

Legend: B examples, L positions, P positions asked for, D model dimension, H heads, E = D / H
width of a head.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from cbert.model.layers import Array, Hyperparameters, dense, kernel_init

# Sums of up to so many terms are written out.
SHORT = 32


class Attention(nn.Module):
    """Multi-head attention of some positions to all that the mask shows."""

    hyper: Hyperparameters

    @nn.compact
    def __call__(self, queries: Array, x: Array, mask: Array) -> Array:
        """queries `[B, P, D]`, x `[B, L, D]`, mask `bool [B, L]`, True where there is an item.

        Returns `[B, P, D]`.
        """
        size, heads = self.hyper.dimension, self.hyper.heads
        examples, asked = queries.shape[:2]
        # Examples last: what is done for one is done for a vector of them.
        query = TurnedDense(self.hyper, size, name="query")(queries)
        key_value = TurnedDense(self.hyper, 2 * size, name="key_value")(x)
        read = attend(
            query.reshape(heads, -1, asked, examples),
            key_value.reshape(2, heads, size // heads, -1, examples),
            mask.T,
        )
        out = dense(self.hyper, size, "out")(read.reshape(size, -1).T)
        return out.reshape(asked, examples, size).swapaxes(0, 1)


class TurnedDense(nn.Module):
    """A dense layer with its output turned: `[B, L, D]` to `[features, L B]`."""

    hyper: Hyperparameters
    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.swapaxes(0, 1).reshape(-1, x.shape[-1])
        shape = x.shape[1], self.features
        kernel = self.param("kernel", kernel_init(self.hyper), shape)
        bias = self.param("bias", nn.initializers.zeros, shape[1:])
        x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.hyper.dtype)
        return lax.dot_general(kernel, x, (((0,), (1,)), ((), ()))) + bias[:, None]


@jax.custom_vjp
def attend(query: Array, key_value: Array, mask: Array) -> Array:
    """Scaled dot-product attention, with a backward pass of its own.

    A set has too few positions for a matrix product of its own to pay, so short sums are
    written out, and each becomes one loop over the batch; as products they took most of a
    block's time for a hundredth of its operations.

    Args:
      query: `[H, E, P, B]`.
      key_value: `[2, H, E, L, B]`.
      mask: `bool [L, B]`.

    Returns:
      `[H, E, P, B]`.
    """
    return _forward(query, key_value, mask)[0]


@jax.jit
def _forward(query: Array, key_value: Array, mask: Array) -> tuple[Array, tuple]:
    logits = _dots(query, key_value[0]).astype(jnp.float32) * query.shape[1] ** -0.5
    logits = jnp.where(mask, logits, -1e9)
    weights = jnp.exp(logits - logits.max(axis=2, keepdims=True))
    weights = (weights / weights.sum(axis=2, keepdims=True)).astype(query.dtype)
    return _over_keys(weights, key_value[1]), (query, key_value, weights)


@jax.jit
def _backward(saved: tuple, gradient: Array) -> tuple[Array, Array, None]:
    query, (key, value), weights = saved
    weighted = (weights * _dots(gradient, value)).astype(jnp.float32)
    d_logits = weighted - weights * weighted.sum(axis=2, keepdims=True)
    d_logits = (d_logits * query.shape[1] ** -0.5).astype(query.dtype)
    d_key, d_value = _over_queries(d_logits, query), _over_queries(weights, gradient)
    return _over_keys(d_logits, key), jnp.stack([d_key, d_value]), None


attend.defvjp(_forward, _backward)


def _dots(query: Array, key: Array) -> Array:
    """Each query `[H, E, P, B]` times each key `[H, E, L, B]`: `[H, P, L, B]`."""
    width = query.shape[1]
    if max(width, key.shape[2]) > SHORT:
        return jnp.einsum("heqb,hekb->hqkb", query, key)
    return sum(query[:, e, :, None] * key[:, e, None] for e in range(width))


def _over_keys(weights: Array, values: Array) -> Array:
    """The sum of values `[H, E, L, B]` for each query, `[H, E, P, B]`."""
    length = values.shape[2]
    if length > SHORT:
        return jnp.einsum("hqkb,hekb->heqb", weights, values)
    return sum(weights[:, None, :, k] * values[:, :, k, None] for k in range(length))


def _over_queries(weights: Array, values: Array) -> Array:
    """The sum of values `[H, E, P, B]` for each key, `[H, E, L, B]`."""
    length = values.shape[2]
    if length > SHORT:
        return jnp.einsum("hqkb,heqb->hekb", weights, values)
    return sum(weights[:, None, q] * values[:, :, q, None] for q in range(length))
