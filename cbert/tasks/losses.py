"""Losses, and their sums over the examples of a batch, which may have weights.

Legend: B examples, T values of the target, Q masked positions, V items or tokens, D dimension.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import optax

from cbert.model.config import ModelConfig
from cbert.model.cross_entropy import cross_entropy, plain_cross_entropy
from cbert.model.layers import uses_fast_kernels
from cbert.tasks.base import Array


def weighted(values: Array, columns: Mapping[str, Any]) -> Array:
    """Losses or counts `[B, ...]` times the weights of their examples, where these have any."""
    weight = columns.get("weight")
    return values if weight is None else values * weight.reshape(-1, *[1] * (values.ndim - 1))


def sum_known(losses: Array, known: Array, columns: Mapping[str, Any]) -> tuple[Array, Array]:
    """The weighted sum of the losses `[B, ...]` that are known, and the sum of their weights.

    Args:
      losses: `[B, ...]`, finite where they are not known, too.
      known: `bool [B, ...]`.
      columns: May hold the examples' weights.
    """
    return weighted(jnp.where(known, losses, 0), columns).sum(), weighted(known, columns).sum()


def sum_cross_entropy(
    logits: Array, codes: Array, columns: Mapping[str, Any]
) -> tuple[Array, Array]:
    """The weighted sum of the cross-entropy (nats) of known codes, and the sum of weights.

    Args:
      logits: `[B, ..., T]`.
      codes: `int32 [B, ...]`, below zero where they are not known.
      columns: May hold the examples' weights.
    """
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(codes, 0))
    return sum_known(losses, codes >= 0, columns)


def masked_cross_entropy(
    config: ModelConfig, vectors: Array, table: Array, bias: Array, targets: Array
) -> Array:
    """-log softmax(vectors table^T + bias) at the targets, by the kernels of the config.

    Args:
      config: The model's.
      vectors: `float32 [Q, D]`, or bfloat16, for products of bfloat16 with float32 sums.
      table: `float32 [V, D]`.
      bias: `float32 [V]`.
      targets: `int32 [Q]`, from 0 to V - 1.

    Returns:
      `float32 [Q]`, nats.
    """
    form = cross_entropy if uses_fast_kernels(config) else plain_cross_entropy
    return form(vectors, table, bias, targets)
