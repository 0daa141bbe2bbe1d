"""The objective over the whole vocabulary, in chunks: logits are never stored whole.

Legend: Q questions, V items, D model dimension.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array


def _chunks(table: Array, bias: Array, size: int) -> tuple[Array, Array, Array]:
    """Table `[n, size, D]` and bias `[n, size]` in padded chunks, and each chunk's start."""
    vocabulary, dimension = table.shape
    number = -(-vocabulary // size)
    padding = number * size - vocabulary
    table = jnp.pad(table, ((0, padding), (0, 0)))
    bias = jnp.pad(bias, (0, padding), constant_values=-jnp.inf)
    starts = jnp.arange(number) * size
    return table.reshape(number, size, dimension), bias.reshape(number, size), starts


def _log_normalizer(hidden: Array, table: Array, bias: Array, size: int) -> Array:
    """log sum_v exp(h t_v + b_v) `[Q]`."""

    def add(total: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, None]:
        rows, offset, _ = chunk
        logits = hidden @ rows.T + offset
        return jnp.logaddexp(total, jax.nn.logsumexp(logits, axis=1)), None

    start = jnp.full(hidden.shape[0], -jnp.inf)
    return lax.scan(add, start, _chunks(table, bias, size))[0]


def _target_logits(hidden: Array, table: Array, bias: Array, targets: Array) -> Array:
    return (hidden * table[targets]).sum(axis=1) + bias[targets]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def cross_entropy(
    hidden: Array, table: Array, bias: Array, targets: Array, chunk: int = 4096
) -> Array:
    """-log softmax(hidden table^T + bias) at the targets.

    Args:
      hidden: `float32 [Q, D]`.
      table: `float32 [V, D]`.
      bias: `float32 [V]`.
      targets: `int32 [Q]`, from 0 to V - 1.
      chunk: Items whose logits are held at once.

    Returns:
      `float32 [Q]`, nats.
    """
    chunk = min(chunk, table.shape[0])
    return _log_normalizer(hidden, table, bias, chunk) - _target_logits(
        hidden, table, bias, targets
    )


def _forward(hidden, table, bias, targets, chunk):
    chunk = min(chunk, table.shape[0])
    normalizer = _log_normalizer(hidden, table, bias, chunk)
    loss = normalizer - _target_logits(hidden, table, bias, targets)
    return loss, (hidden, table, bias, targets, normalizer)


def _backward(chunk, saved, gradient):
    hidden, table, bias, targets, normalizer = saved
    vocabulary, dimension = table.shape
    chunk = min(chunk, vocabulary)

    def step(
        total: Array, part: tuple[Array, Array, Array]
    ) -> tuple[Array, tuple[Array, Array]]:
        rows, offset, _ = part
        probabilities = jnp.exp(hidden @ rows.T + offset - normalizer[:, None])
        weighted = probabilities * gradient[:, None]
        return total + weighted @ rows, (weighted.T @ hidden, weighted.sum(axis=0))

    d_hidden, (d_table, d_bias) = lax.scan(
        step, jnp.zeros_like(hidden), _chunks(table, bias, chunk)
    )
    d_table = d_table.reshape(-1, dimension)[:vocabulary]
    d_bias = d_bias.reshape(-1)[:vocabulary]
    d_hidden = d_hidden - gradient[:, None] * table[targets]
    d_table = d_table.at[targets].add(-gradient[:, None] * hidden)
    d_bias = d_bias.at[targets].add(-gradient)
    return d_hidden, d_table, d_bias, None


cross_entropy.defvjp(_forward, _backward)


def score(
    hidden: Array, table: Array, bias: Array, targets: Array, chunk: int = 4096
) -> tuple[Array, Array]:
    """Log-probability (nats) and rank of the targets among all items.

    Shapes as in `cross_entropy`. The rank counts from 1; ties count against the target.
    Products are full float32 on every device, for ranks hang on small differences.
    """
    chunk = min(chunk, table.shape[0])
    own = _target_logits(hidden, table, bias, targets)

    def step(carry: tuple[Array, Array], part: tuple[Array, Array, Array]):
        total, ahead = carry
        rows, offset, start = part
        logits = jnp.dot(hidden, rows.T, precision=lax.Precision.HIGHEST) + offset
        other = start + jnp.arange(chunk) != targets[:, None]
        ahead += ((logits >= own[:, None]) & other).sum(axis=1)
        return (jnp.logaddexp(total, jax.nn.logsumexp(logits, axis=1)), ahead), None

    start = (jnp.full(hidden.shape[0], -jnp.inf), jnp.zeros(hidden.shape[0], jnp.int32))
    (normalizer, ahead), _ = lax.scan(step, start, _chunks(table, bias, chunk))
    return own - normalizer, ahead + 1
