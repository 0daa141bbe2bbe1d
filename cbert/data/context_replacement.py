"""Context replacement: training shows random values of features, which regularises a model.

Legend: B examples, K entries of a feature's coded rows, R rows of its sample.
"""

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Context = dict[str, Array]

MOST_ROWS = 2**16


def sample(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The training split's columns, from which replacements are drawn, `[R, K]` each.

    Of a split with more than `MOST_ROWS` examples these are the rows at equal distances, so
    that the devices hold few rows of a split that is larger than memory.
    """
    return {
        name: column[np.linspace(0, len(column) - 1, min(len(column), MOST_ROWS)).astype(int)]
        for name, column in columns.items()
    }


def replace_features(
    key: Array,
    context: Context,
    sample: Context,
    indices: Array,
    batch_size: int,
    rate: float,
) -> Context:
    """Replaces features by values of other examples, each feature for itself.

    It is the stochastic shared embeddings of Wu et al. 2019 ("Stochastic Shared Embeddings:
    Data-driven Regularization of Embedding Layers"), but a replacement comes from the
    feature's distribution in the training split, where "missing" is a value like others.

    Args:
      key: The step's key.
      context: Feature name to its coded rows `[B, K]`.
      sample: Feature name to the rows `[R, K]` that replacements are drawn from.
      indices: `int32 [B]`, the index of each example in the global batch; what is replaced
        depends on it, not on the device that holds the example.
      batch_size: Examples of the global batch.
      rate: The probability with which each feature of each example is replaced.
    """
    replaced = {}
    for number, (name, rows) in enumerate(sorted(context.items())):
        chance_key, row_key = jax.random.split(jax.random.fold_in(key, number))
        chance = jax.random.uniform(chance_key, (batch_size,))[indices]
        row = jax.random.randint(row_key, (batch_size,), 0, len(sample[name]))[indices]
        other = sample[name][row]
        replaced[name] = jnp.where((chance < rate)[:, None], other, rows)
    return replaced
