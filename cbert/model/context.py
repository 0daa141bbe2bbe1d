"""The context encoder: each feature embedded on its own, then concatenated (section 4).

Legend: B examples, F features, C width of the context vector, w_f width of one feature, K
entries of a feature's coded rows, D model dimension.
"""

import functools
from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from flax import struct

from cbert.model.config import MEAN, SUM, ModelConfig
from cbert.model.layers import Array, embedding_init
from cbert.model.look_up import small_look_up
from cbert.schema import (
    MISSING_VALUE,
    PAD_ITEM,
    PAD_VALUE,
    SPECIAL_VALUES,
    Feature,
    History,
    NumberFeature,
    Numerical,
    TokenFeature,
)

# Item codes `int32 [B, K]` to their embeddings `[B, K, D]` in the model's item table.
EmbedItems = Callable[[Array], Array]


@struct.dataclass
class Context:
    """The embedded context that a conditioning method reads.

    Attributes:
      vector: `[B, C]`, the concatenated embeddings, the paper's c.
      features: Feature name to its embedding `[B, w_f]`.
      observed: Feature name to `bool [B]`, False where it is missing.
      histories: Name of a history to the embeddings of its items in the model's item table,
        `[B, K, D]`, and to which of them are there, `bool [B, K]`.
    """

    vector: Array
    features: dict[str, Array]
    observed: dict[str, Array]
    histories: dict[str, tuple[Array, Array]] = struct.field(default_factory=dict)


def sum_pool(x: Array, present: Array) -> Array:
    """The sum of x `[B, K, D]` where `bool [B, K]` says so."""
    return jnp.where(present[..., None], x, 0).sum(axis=1)


def mean_pool(x: Array, present: Array) -> Array:
    """The mean of x `[B, K, D]` where `bool [B, K]` says so; zero where it says so nowhere."""
    return sum_pool(x, present) / jnp.maximum(present.sum(axis=1, keepdims=True), 1)


POOLS = {MEAN: mean_pool, SUM: sum_pool}


class CategoricalEmbedding(nn.Module):
    """The mean or sum of the embeddings of a feature's values; an empty list gives zero."""

    config: ModelConfig
    values: int
    width: int

    @nn.compact
    def __call__(self, codes: Array, embed_items: EmbedItems) -> tuple[Array, Array]:
        """codes `int32 [B, K]` to embedding `[B, w_f]` and observed `bool [B]`."""
        table = self.param(
            "embedding",
            embedding_init(self.config, self.width),
            (SPECIAL_VALUES + self.values, self.width),
        )
        rows = small_look_up(table, codes)
        pooled = POOLS[self.config.value_pooling](rows, codes != PAD_VALUE)
        return pooled, codes[:, 0] != MISSING_VALUE


class NumericalProjection(nn.Module):
    """A linear map of the standardised numbers, or an embedding where they are missing."""

    config: ModelConfig
    width: int

    @nn.compact
    def __call__(self, values: Array, embed_items: EmbedItems) -> tuple[Array, Array]:
        """values `float32 [B, 1 + numbers]`, observed first."""
        init, numbers = embedding_init(self.config, self.width), values.shape[1] - 1
        # With `scaled` it begins as large as an embedding, however many the numbers are.
        kernel_init = embedding_init(self.config, self.width * max(numbers, 1))
        kernel = self.param("kernel", kernel_init, (numbers, self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        missing = self.param("missing", init, (1, self.width))
        observed = values[:, 0] > 0
        mapped = values[:, 1:] @ kernel + bias
        return jnp.where(observed[:, None], mapped, missing), observed


class BinnedEmbedding(nn.Module):
    """An embedding for each bin of a numerical feature, and one where it is missing."""

    config: ModelConfig
    width: int
    edges: tuple[float, ...]

    @nn.compact
    def __call__(self, values: Array, embed_items: EmbedItems) -> tuple[Array, Array]:
        """values `float32 [B, 2]`: observed, then the standardised number."""
        table = self.param(
            "embedding",
            embedding_init(self.config, self.width),
            (len(self.edges) + 2, self.width),
        )
        observed = values[:, 0] > 0
        reached = values[:, 1:] >= jnp.asarray(self.edges, jnp.float32)
        index = jnp.where(observed, 1 + reached.sum(axis=1), 0)
        return small_look_up(table, index), observed


class HistoryEmbedding(nn.Module):
    """A linear map of the items' pooled embeddings, or an embedding where it is missing.

    The items' embeddings are the model's own, the unknown item's too; an empty history gives
    the bias.
    """

    config: ModelConfig
    width: int

    @nn.compact
    def __call__(self, rows: Array, embed_items: EmbedItems) -> tuple[Array, Array]:
        """rows `int32 [B, 1 + K]`: observed, then the items' codes."""
        observed, codes = rows[:, 0] > 0, rows[:, 1:]
        pooled = POOLS[self.config.value_pooling](embed_items(codes), codes != PAD_ITEM)
        init = embedding_init(self.config, self.width)
        kernel = self.param("kernel", init, (pooled.shape[1], self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        missing = self.param("missing", init, (1, self.width))
        return jnp.where(observed[:, None], pooled @ kernel + bias, missing), observed


@functools.singledispatch
def feature_embedding(feature: Feature, config: ModelConfig, name: str) -> nn.Module:
    """The module that embeds a feature, by its class.

    The module takes the feature's coded rows `[B, K]` and `EmbedItems`, and returns the rows'
    embedding `[B, w_f]` and whether each was observed, `bool [B]`. A new kind registers a
    function here, unless it derives from a class that has one.
    """
    raise TypeError(f"no module embeds features of the class {type(feature).__name__}")


@feature_embedding.register
def _(feature: TokenFeature, config: ModelConfig, name: str) -> nn.Module:
    return CategoricalEmbedding(config, len(feature.values), feature.width, name=name)


@feature_embedding.register
def _(feature: NumberFeature, config: ModelConfig, name: str) -> nn.Module:
    return NumericalProjection(config, feature.width, name=name)


@feature_embedding.register
def _(feature: Numerical, config: ModelConfig, name: str) -> nn.Module:
    if feature.edges and config.numerical == "bins":
        return BinnedEmbedding(config, feature.width, feature.standardised_edges, name=name)
    return NumericalProjection(config, feature.width, name=name)


@feature_embedding.register
def _(feature: History, config: ModelConfig, name: str) -> nn.Module:
    return HistoryEmbedding(config, feature.width, name=name)


class ContextEncoder(nn.Module):
    """Features to one `Context`. `features` is the schema's list."""

    config: ModelConfig
    features: tuple[Feature, ...]

    @nn.compact
    def __call__(self, columns: dict[str, Array], embed_items: EmbedItems) -> Context:
        """columns: feature name to its coded rows, see `Feature.encode`."""
        embedded, observed, histories = {}, {}, {}
        for feature in self.features:
            column = columns[feature.name]
            if self.config.constant_context:
                column = jnp.broadcast_to(feature.missing(), column.shape)
            embed = feature_embedding(feature, self.config, f"feature_{feature.name}")
            embedded[feature.name], observed[feature.name] = embed(column, embed_items)
            if isinstance(feature, History):
                codes = column[:, 1:]
                histories[feature.name] = embed_items(codes), codes != PAD_ITEM
        rows = next(iter(columns.values())).shape[0] if columns else 1
        vector = jnp.concatenate([jnp.zeros((rows, 0)), *embedded.values()], axis=1)
        return Context(vector.astype(self.config.dtype), embedded, observed, histories)
