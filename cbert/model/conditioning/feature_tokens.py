"""The context as tokens, one a feature, for the methods that attend to it.

Legend: B examples, F features, w_f width of one feature, D model dimension.
"""

import jax.numpy as jnp
from flax import linen as nn

from cbert.model.conditioning.method import Sizes
from cbert.model.config import ModelConfig
from cbert.model.context import Context
from cbert.model.layers import Array, dense_class, embedding_init


class FeatureTokens(nn.Module):
    """t_f = W_f e_f + b_f: each feature's embedding, projected to D on its own.

    The bias b_f is the feature's type embedding. With `scaled` initial values a token begins as
    large as an item's embedding, however wide its feature is.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, context: Context) -> tuple[Array, Array]:
        """The tokens `[B, F, D]`, in the schema's order, and which are observed `bool [B, F]`.

        A missing feature has a token, too: that of its embedding of "missing".
        """
        size, dtype = self.config.dimension, self.config.dtype
        init, cls = embedding_init(self.config, size), dense_class(self.config)
        tokens = [
            cls(size, dtype=dtype, kernel_init=init, name=f"feature_{name}")(embedded)
            for name, embedded in context.features.items()
        ]
        return jnp.stack(tokens, axis=1), jnp.stack([*context.observed.values()], axis=1)

    @staticmethod
    def multiply_adds(sizes: Sizes) -> float:
        """Multiplications with additions for one example, as of `Method.multiply_adds`."""
        return sizes.context * sizes.config.dimension
