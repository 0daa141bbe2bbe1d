"""Self-attention in two forms: a plain one, and one that is fast for short sets on a CPU.

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
from cbert.model.layers import Array, Dropout, dense, kernel_init, uses_fast_kernels

# `auto` takes the fast form up to this length, which writes out sums of up to so many terms.
SHORT, TERMS = 8, 32
# What each position gives each key, `[B, H, P, L]`: an `Attention` keeps it under this name
# where the caller makes the collection `intermediates` mutable.
WEIGHTS = "attention_weights"


class Attention(nn.Module):
    """Multi-head attention of some positions to all that the mask shows.

    Both forms have the same parameters, so that `model.kernels` may differ between a
    checkpoint and the program that restores it.
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, queries: Array, x: Array, mask: Array, bias: Array | None = None
    ) -> Array:
        """Each query position reads the positions that the mask shows.

        Args:
          queries: `[B, P, D]`.
          x: `[B, L, D]`.
          mask: `bool [B, L]`, True where there is a token; or `[B, P, L]`, for each query.
          bias: `[H, P, L]` or broadcastable to it, added to the logits.

        Returns:
          `[B, P, D]`.
        """
        mask = mask[:, None] if mask.ndim == 2 else mask
        form = self._fast if self._takes_fast(x.shape[1]) else self._plain
        read = form(queries, x, mask, bias)
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", WEIGHTS, self._weights(queries, x, mask, bias))
        return read

    def _takes_fast(self, length: int) -> bool:
        if self.config.attention_dropout and self.has_rng("dropout"):
            return False
        short = length <= SHORT or self.config.kernels == "fast"
        return short and uses_fast_kernels(self.config)

    def _plain(self, queries: Array, x: Array, mask: Array, bias: Array | None) -> Array:
        size, heads = self.config.dimension, self.config.heads
        query = dense(self.config, size, "query")(queries)
        key, value = jnp.split(dense(self.config, 2 * size, "key_value")(x), 2, axis=-1)
        query, key, value = (
            part.reshape(*part.shape[:2], heads, size // heads) for part in (query, key, value)
        )
        rate = self.config.attention_dropout if self.has_rng("dropout") else 0.0
        if rate or uses_fast_kernels(self.config):
            exponentials, sums = softmax_parts(query, key, mask, bias)
            if rate:
                exponentials = Dropout(self.config, rate)(exponentials)
            # Dividing what was read, and not the weights, saves a pass over them.
            read = _read(exponentials.astype(value.dtype), value)
            read = (read / sums[..., None]).astype(value.dtype).swapaxes(1, 2)
        else:
            logits_bias = None if bias is None else bias[None].astype(query.dtype)
            read = jax.nn.dot_product_attention(
                query, key, value, bias=logits_bias, mask=mask[:, None]
            )
        return dense(self.config, size, "out")(read.reshape(queries.shape))

    def _fast(self, queries: Array, x: Array, mask: Array, bias: Array | None) -> Array:
        size, heads = self.config.dimension, self.config.heads
        examples, positions = queries.shape[:2]
        # Examples come last, so that one instruction handles a vector of them.
        query = TransposedDense(self.config, size, name="query")(queries)
        key_value = TransposedDense(self.config, 2 * size, name="key_value")(x)
        read = attend(
            query.reshape(heads, -1, positions, examples),
            key_value.reshape(2, heads, size // heads, -1, examples),
            jnp.moveaxis(mask, 0, -1),
            bias,
        )
        out = dense(self.config, size, "out")(read.reshape(size, -1).T)
        return out.reshape(positions, examples, size).swapaxes(0, 1)

    def _weights(self, queries: Array, x: Array, mask: Array, bias: Array | None) -> Array:
        """What each head gives each key, `[B, H, P, L]`; neither form returns it."""
        params, heads = self.variables["params"], self.config.heads

        def by_head(name: str, of: Array) -> Array:
            y = of @ params[name]["kernel"] + params[name]["bias"]
            return y.reshape(*of.shape[:2], -1, self.config.dimension // heads)

        key = by_head("key_value", x)[:, :, :heads]
        return attention_weights(by_head("query", queries), key, mask, bias)


def attention_weights(query: Array, key: Array, mask: Array, bias: Array | None) -> Array:
    """Softmax of the scaled products: query `[B, P, H, E]`, key `[B, L, H, E]`.

    The mask is `bool [B, P, L]`, or broadcastable to it.

    Returns:
      `[B, H, P, L]` in the dtype of the query; the softmax itself is float32.
    """
    exponentials, sums = softmax_parts(query, key, mask, bias)
    return (exponentials / sums[..., None]).astype(query.dtype)


def softmax_parts(
    query: Array, key: Array, mask: Array, bias: Array | None
) -> tuple[Array, Array]:
    """The softmax of the scaled products before it is divided, with the arguments of the above.

    Returns:
      Its exponentials, `float32 [B, H, P, L]`, and their sums, `float32 [B, H, P]`.
    """
    if products.are_fast(query.dtype):
        logits = products.product(query.swapaxes(1, 2), key.swapaxes(1, 2), True)
    else:
        logits = jnp.einsum("bqhe,blhe->bhql", query, key, preferred_element_type=jnp.float32)
    logits = logits * query.shape[-1] ** -0.5
    if bias is not None:
        logits = logits + bias
    logits = jnp.where(mask[:, None], logits, -1e9)
    highest = lax.stop_gradient(logits.max(axis=-1, keepdims=True))
    exponentials = jnp.exp(logits - highest)
    return exponentials, exponentials.sum(axis=-1)


def _read(weights: Array, value: Array) -> Array:
    """The sums of values `[B, L, H, E]` by weights `[B, H, P, L]`, `[B, H, P, E]`."""
    if products.are_fast(value.dtype):
        return products.product(weights, value.swapaxes(1, 2))
    return jnp.einsum("bhql,blhe->bhqe", weights, value)


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
        x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.config.dtype)
        if products.are_fast(x.dtype):
            rows = products.product(kernel.T, x, True).astype(x.dtype)
        else:
            rows = lax.dot_general(kernel, x, (((0,), (1,)), ((), ())))
        return rows + bias[:, None]


@jax.custom_vjp
def attend(query: Array, key_value: Array, mask: Array, bias: Array | None = None) -> Array:
    """Scaled dot-product attention, with a backward pass of its own.

    A set has too few positions for a matrix product of its own to pay, so short sums are
    written out, and each becomes one loop over the batch.

    Args:
      query: `[H, E, P, B]`.
      key_value: `[2, H, E, L, B]`.
      mask: `bool [P, L, B]`, or broadcastable to it.
      bias: `[H, P, L]`, or None.

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
        logits = logits + bias[..., None]
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
        d_bias = _sum_to(d_logits.sum(axis=3), bias.shape).astype(bias.dtype)
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
