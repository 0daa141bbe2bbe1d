"""Self-attention in three forms: a plain one, and those that are fast for short sets on a CPU
and in bfloat16 on a GPU.

Legend: B examples, L positions, P query positions, D model dimension, H heads, E = D / H width
of a head.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from cbert import parallel
from cbert.model import products
from cbert.model.config import ModelConfig
from cbert.model.layers import Array, Dropout, dense, uses_fast_kernels
from cbert.model.short_attention import TransposedDense, attend

# `auto` takes the fast form up to this length.
SHORT = 8
# From this length on examples and heads take turns where nothing is learnt, so many weights at
# once that they stay in the cache.
LONG, WEIGHTS_AT_ONCE = 256, 2**21
# The widths of a head that `flash_attention` takes.
FLASH_WIDTHS = (16, 32, 64, 128)
# What each position gives each key, `[B, H, P, L]`: an `Attention` keeps it under this name
# where the caller makes the collection `intermediates` mutable.
WEIGHTS = "attention_weights"


class Attention(nn.Module):
    """Multi-head attention of some positions to all that the mask shows.

    All forms have the same parameters, so that `model.kernels` may differ between a
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
          bias: `[H, P, L]`, or `[B, H, P, L]` for each example, or broadcastable to it, added
            to the logits.

        Returns:
          `[B, P, D]`.
        """
        mask = mask[:, None] if mask.ndim == 2 else mask
        if bias is not None:
            bias = jnp.expand_dims(bias, tuple(range(4 - bias.ndim)))
        form = self._plain
        if self._takes_fast(x.shape[1]):
            form = self._fast
        elif takes_flash(self.config) and bias is None and mask.shape[1] == 1:
            form = self._flash
        read = form(queries, x, mask, bias)
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", WEIGHTS, self._weights(queries, x, mask, bias))
        return read

    def _takes_fast(self, length: int) -> bool:
        if self._rate():
            return False
        short = length <= SHORT or self.config.kernels == "fast"
        return short and uses_fast_kernels(self.config)

    def _rate(self) -> float:
        """The fraction of the weights that this call drops."""
        return self.config.attention_dropout if self.has_rng("dropout") else 0.0

    def _plain(self, queries: Array, x: Array, mask: Array, bias: Array | None) -> Array:
        size, heads = self.config.dimension, self.config.heads
        query = dense(self.config, size, "query")(queries)
        key, value = jnp.split(dense(self.config, 2 * size, "key_value")(x), 2, axis=-1)
        query, key, value = (
            part.reshape(*part.shape[:2], heads, size // heads) for part in (query, key, value)
        )
        learns, fast = self.has_rng("dropout"), uses_fast_kernels(self.config)
        counted = isinstance(x.shape[0], int)  # An exported program takes any number of rows.
        rate = self._rate()
        if fast and counted and not learns and parallel.platform() == "cpu":
            if bias is None and x.shape[1] >= LONG:
                read = read_by_turns(query, key, value, mask)
            else:
                read = read_stored(query, key, value, mask, bias)
        elif rate or fast or products.are_fast(query.dtype):
            read = softmax_read(query, key, value, mask, bias, Dropout(self.config, rate))
        else:
            logits_bias = None if bias is None else bias.astype(query.dtype)
            read = jax.nn.dot_product_attention(
                query, key, value, bias=logits_bias, mask=mask[:, None]
            )
        return dense(self.config, size, "out")(read.reshape(queries.shape))

    def _flash(self, queries: Array, x: Array, mask: Array, bias: Array | None) -> Array:
        size, heads, rate = self.config.dimension, self.config.heads, self._rate()
        query = dense(self.config, size, "query")(queries)
        # XLA would make one product of the two, and copy both for the kernel.
        key_value = dense(self.config, 2 * size, "key_value")(lax.optimization_barrier(x))
        read = _flash_attention().attend(
            query.reshape(*query.shape[:2], heads, -1),
            key_value.reshape(*key_value.shape[:2], 2, heads, -1),
            jnp.broadcast_to(mask[:, 0], x.shape[:2]),
            Dropout(self.config, rate).keys() if rate else jnp.zeros(2, jnp.uint32),
            rate,
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
            None if bias is None else jnp.moveaxis(bias, 0, -1),
        )
        out = dense(self.config, size, "out")(read.reshape(size, -1).T)
        return out.reshape(positions, examples, size).swapaxes(0, 1)

    def _weights(self, queries: Array, x: Array, mask: Array, bias: Array | None) -> Array:
        """What each head gives each key, `[B, H, P, L]`; no form returns it."""
        params, heads = self.variables["params"], self.config.heads

        def by_head(name: str, of: Array) -> Array:
            y = of @ params[name]["kernel"].astype(jnp.float32) + params[name]["bias"]
            return y.reshape(*of.shape[:2], -1, self.config.dimension // heads)

        key = by_head("key_value", x)[:, :, :heads]
        return attention_weights(by_head("query", queries), key, mask, bias)


def takes_flash(config: ModelConfig) -> bool:
    """Whether attention to a mask of keys alone stores no weights here."""
    width = config.dimension // config.heads
    return (
        uses_fast_kernels(config)
        and products.are_fast(jnp.dtype(config.dtype))
        and parallel.has_bfloat16_units()
        and width in FLASH_WIDTHS
        and _flash_attention() is not None
    )


@functools.cache
def _flash_attention() -> Any:
    """The kernel's module, which is slow to import; None with a JAX that has not what it needs.

    JAX has announced that it will leave out Pallas for Triton.
    """
    try:
        return importlib.import_module("cbert.model.flash_attention")
    except ImportError:
        return None


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


def softmax_read(
    query: Array,
    key: Array,
    value: Array,
    mask: Array,
    bias: Array | None = None,
    drop: Callable[[Array], Array] = lambda weights: weights,
) -> Array:
    """The sums of values by the softmax of the scaled products.

    Args:
      query: `[B, P, H, E]`.
      key, value: `[B, L, H, E]`.
      mask: `bool [B, P, L]`, or broadcastable to it.
      bias: `[B, H, P, L]` or broadcastable to it, or None.
      drop: Applied to the weights before they are divided by their sums.

    Returns:
      `[B, P, H, E]`, in the dtype of the values.
    """
    exponentials, sums = softmax_parts(query, key, mask, bias)
    # Dividing what was read, and not the weights, saves a pass over them.
    read = _read(drop(exponentials).astype(value.dtype), value)
    return (read / sums[..., None]).astype(value.dtype).swapaxes(1, 2)


def read_stored(
    query: Array, key: Array, value: Array, mask: Array, bias: Array | None = None
) -> Array:
    """`softmax_read` where nothing is learnt, on a CPU.

    The exponentials are stored in the dtype of the values, and summed from there. XLA would
    compute each of them again for the sums.
    """
    exponentials, _ = softmax_parts(query, key, mask, bias)
    stored = lax.optimization_barrier(exponentials.astype(value.dtype))
    sums = stored.astype(jnp.float32).sum(axis=-1)
    return (_read(stored, value) / sums[..., None]).astype(value.dtype).swapaxes(1, 2)


def read_by_turns(query: Array, key: Array, value: Array, mask: Array) -> Array:
    """`read_stored` of some examples and heads at a time, so that never all weights exist."""
    examples, positions, heads, _ = query.shape
    most = WEIGHTS_AT_ONCE // (positions * key.shape[1])  # Heads, one of each example.
    if (some := _part_of(examples, most)) < examples:
        mask = jnp.broadcast_to(mask, (examples, *mask.shape[1:]))
        read = lax.map(
            lambda parts: read_by_turns(*parts),
            [part.reshape(-1, some, *part.shape[1:]) for part in (query, key, value, mask)],
        )
        return read.reshape(query.shape)
    at_once = _part_of(heads, most // examples)

    def split(part: Array) -> Array:
        parts = part.reshape(*part.shape[:2], -1, at_once, part.shape[-1])
        return jnp.moveaxis(parts, 2, 0)

    read = lax.map(
        lambda parts: read_stored(parts[0], parts[1], parts[2], mask),
        (split(query), split(key), split(value)),
    )
    return jnp.moveaxis(read, 0, 2).reshape(query.shape)


def _part_of(number: int, most: int) -> int:
    """The largest divisor of a number that is at most so many, or 1."""
    return max(n for n in range(1, number + 1) if number % n == 0 and n <= max(1, most))


def _read(weights: Array, value: Array) -> Array:
    """The sums of values `[B, L, H, E]` by weights `[B, H, P, L]`, `[B, H, P, E]`."""
    if products.are_fast(value.dtype):
        return products.product(weights, value.swapaxes(1, 2))
    return jnp.einsum("bhql,blhe->bhqe", weights, value)
