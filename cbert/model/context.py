"""The context encoder: each feature embedded on its own, then concatenated (section 4).

Legend: B examples, F features, C width of the context vector, w_f width of one feature.
"""

import jax.numpy as jnp
from flax import linen as nn
from flax import struct

from cbert.model.config import ModelConfig
from cbert.model.layers import Array, embedding_init
from cbert.schema import MISSING_VALUE, PAD_VALUE, SPECIAL_VALUES, Feature


@struct.dataclass
class Context:
    """What a conditioning method may condition on.

    Attributes:
      vector: `[B, C]`, the concatenated embeddings, the paper's c.
      features: Feature name to its embedding `[B, w_f]`.
      observed: Feature name to `bool [B]`, False where it is missing.
    """

    vector: Array
    features: dict[str, Array]
    observed: dict[str, Array]


class Tokens(nn.Module):
    """The mean of the embeddings of a feature's values; an empty list gives zero."""

    config: ModelConfig
    values: int
    width: int

    @nn.compact
    def __call__(self, codes: Array) -> tuple[Array, Array]:
        """codes `int32 [B, K]` to embedding `[B, w_f]` and observed `bool [B]`."""
        table = self.param(
            "embedding",
            embedding_init(self.config, self.width),
            (SPECIAL_VALUES + self.values, self.width),
        )
        present = (codes != PAD_VALUE)[..., None]
        total = jnp.where(present, table[codes], 0).sum(axis=1)
        mean = total / jnp.maximum(present.sum(axis=1), 1)
        return mean, codes[:, 0] != MISSING_VALUE


class Numbers(nn.Module):
    """A linear map of the standardised numbers, or an embedding where they are missing."""

    config: ModelConfig
    width: int

    @nn.compact
    def __call__(self, values: Array) -> tuple[Array, Array]:
        """values `float32 [B, 1 + numbers]`, observed first."""
        init, numbers = embedding_init(self.config, self.width), values.shape[1] - 1
        # However many the numbers, the result begins as large as an embedding.
        kernel_init = embedding_init(self.config, self.width * max(numbers, 1))
        kernel = self.param("kernel", kernel_init, (numbers, self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        missing = self.param("missing", init, (1, self.width))
        observed = values[:, 0] > 0
        mapped = values[:, 1:] @ kernel + bias
        return jnp.where(observed[:, None], mapped, missing), observed


class Bins(nn.Module):
    """An embedding for each bin of a numerical feature, and one where it is missing."""

    config: ModelConfig
    width: int
    edges: tuple[float, ...]

    @nn.compact
    def __call__(self, values: Array) -> tuple[Array, Array]:
        """values `float32 [B, 2]`: observed, then the standardised number."""
        table = self.param(
            "embedding",
            embedding_init(self.config, self.width),
            (len(self.edges) + 2, self.width),
        )
        observed = values[:, 0] > 0
        reached = values[:, 1:] >= jnp.asarray(self.edges, jnp.float32)
        place = jnp.where(observed, 1 + reached.sum(axis=1), 0)
        return table[place], observed


class ContextEncoder(nn.Module):
    """Features to one `Context`. `features` is the schema's list."""

    config: ModelConfig
    features: tuple[Feature, ...]

    @nn.compact
    def __call__(self, columns: dict[str, Array]) -> Context:
        """columns: feature name to its coded rows, see `Feature.encode`."""
        embedded, observed = {}, {}
        for feature in self.features:
            column = columns[feature.name]
            if self.config.constant_context:
                column = jnp.broadcast_to(feature.encode([None]), column.shape)
            encoder = self._encoder(feature)
            embedded[feature.name], observed[feature.name] = encoder(column)
        rows = next(iter(columns.values())).shape[0] if columns else 1
        vector = jnp.concatenate([jnp.zeros((rows, 0)), *embedded.values()], axis=1)
        return Context(vector.astype(self.config.dtype), embedded, observed)

    def _encoder(self, feature: Feature) -> nn.Module:
        name = f"feature_{feature.name}"
        if feature.is_token:
            return Tokens(self.config, len(feature.values), feature.width, name=name)
        if feature.edges and self.config.numerical == "bins":
            edges = tuple((edge - feature.mean) / feature.scale for edge in feature.edges)
            return Bins(self.config, feature.width, edges, name=name)
        return Numbers(self.config, feature.width, name=name)
