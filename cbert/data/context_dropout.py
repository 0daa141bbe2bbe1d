"""Context dropout: training drops features, so that a model learns to predict without them.

Legend: B examples, K entries of a feature's coded rows.
"""

import jax
import jax.numpy as jnp

from cbert.schema import Schema

Array = jax.Array


def drop_features(
    key: Array,
    context: dict[str, Array],
    indices: Array,
    batch_size: int,
    rate: float,
    schema: Schema,
) -> dict[str, Array]:
    """Replaces features by missing or, where their kind has it, by unknown.

    Args:
      key: The step's key.
      context: Feature name to its coded rows `[B, K]`.
      indices: `int32 [B]`, the index of each example in the global batch; what is dropped
        depends on it, not on the device that holds the example.
      batch_size: Examples of the global batch.
      rate: The probability with which each feature of each example is dropped; what it then
        shows is drawn with equal chances from its kind's `dropped`.
      schema: The features.
    """
    if not rate or not schema.features:
        return context
    shape = (batch_size, len(schema.features))
    uniform = jax.random.uniform(key, shape)[indices]
    shown = {}
    for column, feature in zip(uniform.T, schema.features, strict=True):
        choices = feature.dropped()
        bounds = jnp.array([rate * number / len(choices) for number in range(1, len(choices))])
        choice = (column[:, None] >= bounds).sum(axis=1)
        dropped = jnp.asarray(choices)[choice]
        shown[feature.name] = jnp.where(
            (column < rate)[:, None], dropped, context[feature.name]
        )
    return shown
