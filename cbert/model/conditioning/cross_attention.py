"""Cross-attention: in every block the positions attend to one token a feature.

Legend: B examples, F features, D model dimension.
"""

from typing import Any

import jax.numpy as jnp

from cbert.model.attention import WEIGHTS, Attention
from cbert.model.conditioning.feature_tokens import FeatureTokens
from cbert.model.conditioning.method import Sizes
from cbert.model.conditioning.reading import ReadingMethod
from cbert.model.context import Context
from cbert.model.layers import Array, dense, embedding_init
from cbert.schema import Feature

NULL = "(null)"  # The null token among the names of features.


class CrossAttention(ReadingMethod):
    """In each block x = Norm(x + Dropout(Attention(x, T))), where T has a token a feature.

    Each position reads what it needs of the context, while [GS] gives all positions the same:
    with one token alone it is [GS]. Missing features are masked out. A null token, which is
    learned, is always there, so that a position may read nothing and a context may be empty.

    With `model.start_as_plain` it is x + Dropout(W Attention(x, T)): W begins at zero, as the
    zero convolutions of ControlNet do (Zhang, Rao and Agrawala, 2023), and no norm follows.
    """

    zero_is_plain = ("out",)
    shows = WEIGHTS

    def setup(self) -> None:
        config, layers = self.config, range(self.config.layers)
        self.tokens = FeatureTokens(config)
        init = embedding_init(config, config.dimension)
        self.null = self.param("null", init, (1, 1, config.dimension))
        self.attention = [Attention(config) for _ in layers]
        if config.start_as_plain:
            self.out = [dense(config, config.dimension, zero=True) for _ in layers]
        self.make_residuals()

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        """The state is the tokens `[B, F + 1, D]` and which are shown, `bool [B, F + 1]`."""
        tokens, observed = self.tokens(context)
        null = jnp.broadcast_to(self.null, (tokens.shape[0], 1, tokens.shape[2]))
        tokens = jnp.concatenate([tokens, null.astype(tokens.dtype)], axis=1)
        # Attention begins as their mean, which is then as large as one embedding.
        tokens = tokens * tokens.shape[1] ** 0.5
        shown = jnp.pad(observed, ((0, 0), (0, 1)), constant_values=True)
        return x, mask, (tokens, shown)

    def after_attention(self, layer: int, x: Array, mask: Array, state: Any) -> Array:
        y = self.attention[layer](x, *state)
        if self.config.start_as_plain:
            y = self.out[layer](y)
        return self.add_read(layer, x, y)

    @classmethod
    def keys(cls, features: tuple[Feature, ...], tokens: int, options: Any) -> tuple[str, ...]:
        return *(feature.name for feature in features), NULL

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size, keys = sizes.config.dimension, sizes.features + 1
        read = 2 * sizes.rows * size * (size + keys) + sizes.config.layers * keys * 2 * size**2
        if sizes.config.start_as_plain:
            read += sizes.rows * size**2
        return FeatureTokens.multiply_adds(sizes) + read
