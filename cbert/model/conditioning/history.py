"""A transformer over the context's history, read by cross-attention in every block (POG).

Legend: B examples, T tokens of the context, D model dimension.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field
from cbert.model.attention import WEIGHTS, Attention
from cbert.model.conditioning.feature_tokens import FeatureTokens
from cbert.model.conditioning.method import Sizes
from cbert.model.conditioning.reading import ReadingMethod
from cbert.model.config import ModelConfig
from cbert.model.context import Context
from cbert.model.layers import FNN, AddAndNorm, Array, embedding_init
from cbert.schema import Feature, History

EMPTY = "(empty)"  # What stands in for an empty context among the names of features.


@dataclasses.dataclass(frozen=True)
class HistoryConfig:
    """The context as tokens that a transformer of their own encodes."""

    blocks: int = field(
        1,
        "blocks over the tokens of the context before the others read them; 0 for none",
        at_least=0,
    )


class HistoryBlock(nn.Module):
    """One block over the tokens of the context, with the sizes of the model's blocks."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Array, mask: Array) -> Array:
        """x `[B, T, D]` and mask `bool [B, T]` to `[B, T, D]`."""
        config = self.config
        y = Attention(config, name="attention")(x, x, mask)
        x = AddAndNorm(config, name="attention_norm")(x, y)
        y = FNN(config, config.feed_forward, config.activation, name="fnn")(x)
        return AddAndNorm(config, name="fnn_norm")(x, y)


class ContextTokens(nn.Module):
    """The items of each history, and one token for each other feature.

    An item's token is its embedding in the model's table plus a learned vector of the feature;
    as in a set, the order of the items is not used. Missing features have no token. Where there
    would be none at all, a learned token stands in. It is not zero to begin with, because the
    norm of a vector near zero has gradients that are 1 / sqrt(epsilon) times too large.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, context: Context) -> tuple[Array, Array]:
        """The tokens `[B, T, D]`, and which are there, `bool [B, T]`."""
        size = self.config.dimension
        tokens, masks = [], []
        for name, (items, mask) in context.histories.items():
            tokens.append(items + self.param(f"type_{name}", nn.initializers.zeros, (size,)))
            masks.append(mask)
        others = {
            name: embedded
            for name, embedded in context.features.items()
            if name not in context.histories
        }
        if others:
            observed = {name: context.observed[name] for name in others}
            rest = dataclasses.replace(context, features=others, observed=observed)
            embedded, mask = FeatureTokens(self.config, name="features")(rest)
            tokens.append(embedded)
            masks.append(mask)
        empty = jnp.concatenate(masks, axis=1).sum(axis=1, keepdims=True) == 0
        stand_in = self.param("empty", embedding_init(self.config, size), (1, 1, size))
        tokens.append(jnp.broadcast_to(stand_in, (empty.shape[0], 1, size)))
        x = jnp.concatenate([one.astype(self.config.dtype) for one in tokens], axis=1)
        return x, jnp.concatenate([*masks, empty], axis=1)


class ReadHistory(ReadingMethod):
    """In each block x = Norm(x + Dropout(Attention(x, U))), U = Encoder(tokens) / sqrt(D).

    This is in the spirit of POG (Chen et al. 2019, "POG: Personalized Outfit Generation for
    Fashion Recommendation at Alibaba iFashion"), where a transformer encodes the items that a
    user clicked and the one that makes an outfit attends to them. The tokens are the items of
    the context's histories and one token for each other feature. What their blocks give is
    divided by sqrt(D), so that U begins as large as an embedding, as the state of [GS] does.
    With one token and without blocks over it the method is [GS] with a linear state.

    With `model.start_as_plain` it is x + Dropout(a Attention(x, U)): for each block a is a
    learned vector of gates that begins at zero, and no norm follows.
    """

    Config = HistoryConfig
    zero_is_plain = ("gates",)
    shows = WEIGHTS

    def setup(self) -> None:
        config, layers = self.config, range(self.config.layers)
        self.tokens = ContextTokens(config)
        self.encoder = [HistoryBlock(config) for _ in range(self.options.blocks)]
        self.attention = [Attention(config) for _ in layers]
        if config.start_as_plain:
            zeros, shape = nn.initializers.zeros, (config.layers, config.dimension)
            self.gates = self.param("gates", zeros, shape)
        self.make_residuals()

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        tokens, shown = self.tokens(context)
        for block in self.encoder:
            tokens = block(tokens, shown)
        if self.encoder:  # A block ends in a norm of scale 1, and embeddings are smaller.
            tokens = tokens * tokens.shape[-1] ** -0.5
        return x, mask, (tokens, shown)

    def after_attention(self, layer: int, x: Array, mask: Array, state: Any) -> Array:
        y = self.attention[layer](x, *state)
        if self.config.start_as_plain:
            y = self.gates[layer].astype(y.dtype) * y
        return self.add_read(layer, x, y)

    @classmethod
    def keys(cls, features: tuple[Feature, ...], tokens: int, options: Any) -> tuple[str, ...]:
        """A history's name stands once for each of its items."""
        histories = [feature for feature in features if isinstance(feature, History)]
        items = [feature.name for feature in histories for _ in range(feature.max_items)]
        others = [feature.name for feature in features if feature not in histories]
        return *items, *others, EMPTY

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        config, size = sizes.config, sizes.config.dimension
        widths, items = (sum(column) for column in zip((0, 0), *sizes.histories, strict=True))
        tokens = sizes.features - len(sizes.histories) + items + 1
        projections = (sizes.context - widths) * size
        own = tokens * (4 * size**2 + 2 * tokens * size + 2 * size * config.feed_forward)
        keys = config.layers * tokens * 2 * size**2
        read = sizes.rows * (2 * size**2 + 2 * tokens * size) + keys
        return projections + sizes.options.blocks * own + read
