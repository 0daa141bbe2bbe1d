"""What is asked of an encoder: from its hidden states to the numbers that a task needs.

Legend: B examples, P query positions, D model dimension, V real items.
"""

import jax.numpy as jnp
from flax import linen as nn

from cbert.model.config import ModelConfig
from cbert.model.layers import ACTIVATIONS, Array, dense, norm


class MaskedItemHead(nn.Module):
    """The dense layer before the output layer, which is the embedding's table transposed.

    The logits themselves are left to the loss, which never holds them whole.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.transform = dense(self.config, self.config.dimension)
        if self.config.transform_norm:
            self.transform_norm = norm(self.config)

    def __call__(self, x: Array) -> Array:
        """x `[B, P, D]` to `float32 [B, P, D]`, to be compared with every item's row."""
        x = ACTIVATIONS[self.config.transform_activation](self.transform(x))
        if self.config.transform_norm:
            x = self.transform_norm(x)
        return x.astype(jnp.float32)
