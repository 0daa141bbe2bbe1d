"""Three conditioning methods as somebody outside the package would write them.

Legend: B examples, L positions, P query positions, D model dimension, F features.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field
from cbert.model.attention import Attention
from cbert.model.conditioning.method import FEED_FORWARD, Method, Sizes
from cbert.model.config import ModelConfig
from cbert.model.context import Context
from cbert.model.layers import AddAndNorm, Array, dense, embedding_init


@dataclasses.dataclass(frozen=True)
class FilmConfig:
    """The method FiLM."""

    shift: bool = field(True, "whether beta is learned beside gamma")


class Film(Method):
    """FiLM (Perez et al. 2018): x becomes gamma(c) x + beta(c) after each FNN, at first x."""

    Config = FilmConfig

    def setup(self) -> None:
        size = self.config.dimension * (2 if self.options.shift else 1)
        zeros = nn.initializers.zeros
        self.modulation = [
            nn.Dense(size, dtype=self.config.dtype, kernel_init=zeros)
            for _ in range(self.config.layers)
        ]

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        return x, mask, context.vector

    def residual(
        self,
        layer: int,
        sublayer: str,
        x: Array,
        y: Array,
        state: Any,
        add_and_norm: Callable[[Array, Array], Array],
    ) -> Array:
        x = add_and_norm(x, y)
        if sublayer != FEED_FORWARD:
            return x
        gamma, *beta = jnp.split(
            self.modulation[layer](state)[:, None], 2 if self.options.shift else 1, axis=-1
        )
        return sum(beta, (1 + gamma) * x)

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return sizes.config.layers * sizes.context * 2 * sizes.config.dimension


class FeatureTokens(nn.Module):
    """A token for each feature; the bias of its projection is its type embedding."""

    config: ModelConfig

    @nn.compact
    def __call__(self, context: Context) -> tuple[Array, Array]:
        """The tokens `[B, F, D]`, and which are observed, `bool [B, F]`."""
        size = self.config.dimension
        tokens = [
            dense(self.config, size, name)(embedded)
            for name, embedded in context.features.items()
        ]
        return jnp.stack(tokens, axis=1), jnp.stack([*context.observed.values()], axis=1)


class Prefix(Method):
    """Each feature is one more position; missing ones are masked out (Xia et al. 2020)."""

    def setup(self) -> None:
        self.tokens = FeatureTokens(self.config)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, None]:
        tokens, observed = self.tokens(context)
        mask = jnp.concatenate([mask, observed], axis=1)
        return jnp.concatenate([x, tokens], axis=1), mask, None

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return sizes.context * sizes.config.dimension

    @classmethod
    def extra_positions(cls, sizes: Sizes) -> float:
        return sizes.features


class CrossAttention(Method):
    """In each block a cross-attention reads the features' tokens and a null token."""

    def setup(self) -> None:
        config, layers = self.config, range(self.config.layers)
        self.tokens = FeatureTokens(config)
        init = embedding_init(config, config.dimension)
        self.null = self.param("null", init, (1, 1, config.dimension))
        self.attention = [Attention(config) for _ in layers]
        self.add_and_norm = [AddAndNorm(config) for _ in layers]

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        tokens, observed = self.tokens(context)
        null = jnp.broadcast_to(self.null, (len(tokens), 1, tokens.shape[2]))
        state = (
            jnp.concatenate([tokens, null.astype(tokens.dtype)], axis=1),
            jnp.pad(observed, ((0, 0), (0, 1)), constant_values=True),
        )
        return x, mask, state

    def after_attention(self, layer: int, x: Array, mask: Array, state: Any) -> Array:
        return self.add_and_norm[layer](x, self.attention[layer](x, *state))

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size, keys = sizes.config.dimension, sizes.features + 1
        queries = (sizes.config.layers - 1) * sizes.length + sizes.queries
        read = 2 * queries * size * (size + keys) + sizes.config.layers * keys * 2 * size**2
        return sizes.context * size + read


METHODS: dict[str, type[Method]] = {
    "film": Film,
    "prefix": Prefix,
    "cross_attention": CrossAttention,
}
