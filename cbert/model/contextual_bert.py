"""The model: an encoder and the head of a task, in one tree of parameters.

Legend: B examples, L positions, P query positions, D model dimension, E width of the items' own
embeddings, V real items, C width of the context vector.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.model.config import ModelConfig
from cbert.model.embeddings import ItemEmbedding
from cbert.model.encoder import Encoder, build_encoder
from cbert.model.heads import MaskedItemHead
from cbert.model.layers import Array
from cbert.schema import PAD_ITEM, Feature, Schema


class ContextualBert(nn.Module):
    """Pr(masked item | visible items, context).

    Dropout is active where `apply` is given `rngs={"dropout": key}`.

    Attributes:
      encoder: Tokens and context to hidden states.
      head: Hidden states to the vectors that are compared with the items.
    """

    encoder: Encoder
    head: MaskedItemHead

    def setup(self) -> None:
        # Encoder and head name their parameters side by side, without a level of their own.
        nn.share_scope(self, self.encoder)
        nn.share_scope(self, self.head)

    def __call__(
        self, codes: Array, context: dict[str, Array], queries: Array
    ) -> tuple[Array, Array, Array]:
        """A vector for each masked item, and the output layer to compare it with.

        Args:
          codes: `int32 [B, L]` item codes, masked ones replaced, padded with -1.
          context: Feature name to its coded rows.
          queries: `int32 [B, P]`, the masked positions.

        Returns:
          `float32 [B, P, E]`, and the output layer, tied to the embedding: table `[V, E]` and
          bias `[V]`; E is D unless the items have a width of their own.
        """
        embedding = self.encoder.embedding
        x, table = embedding(codes)
        x = self.encoder(x, codes != PAD_ITEM, context, queries)
        return embedding.comparable(self.head(x)), table, embedding.bias

    def hidden_states(self, codes: Array, context: dict[str, Array]) -> Array:
        """The encoder's output at all positions, `[B, L, D]`; nothing is masked."""
        x, _ = self.encoder.embedding(codes)
        return self.encoder(x, codes != PAD_ITEM, context)

    @property
    def vocabulary(self) -> int:
        """V."""
        return self.encoder.embedding_sizes[0]

    @property
    def shards(self) -> int:
        """The devices that the items are split over, see `item_shards`; 1 for no split."""
        return self.encoder.embedding_sizes[2]

    def with_shards(self, shards: int) -> "ContextualBert":
        """The same model with its items split over so many devices."""
        sizes = *self.encoder.embedding_sizes[:2], shards
        return self.clone(encoder=self.encoder.clone(embedding_sizes=sizes))

    def smallest_inputs(self) -> tuple[Any, ...]:
        """Arguments of a call, which initialise the parameters."""
        codes = jnp.zeros((1, 1), jnp.int32)
        return codes, missing_context(self.encoder.features), codes

    def context_vector(self, context: dict[str, Array]) -> Array:
        """The features' embeddings side by side, `[B, C]`: the paper's c."""
        return self.encoder.embed_context(context).vector


def build(
    config: ModelConfig, method: str, schema: Schema, options: Any = None
) -> ContextualBert:
    """The model for a data set's schema.

    Args:
      config: Sizes and open choices.
      method: Name of the conditioning method.
      schema: The data's schema.
      options: The method's own section; None for its defaults.

    Raises:
      UserError: the method cannot be had, see `build_encoder`.
    """
    sizes = len(schema.items), schema.max_items, 1
    encoder = build_encoder(config, method, schema.features, ItemEmbedding, sizes, options)
    return ContextualBert(encoder, MaskedItemHead(config))


def missing_context(features: tuple[Feature, ...]) -> dict[str, Array]:
    """The coded context of one example that has none."""
    return {feature.name: jnp.asarray(feature.missing()) for feature in features}
