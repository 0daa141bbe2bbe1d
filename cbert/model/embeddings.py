"""Embeddings: the codes of tokens become the vectors that the first block reads.

Legend: B examples, L positions, P query positions, K items of a context, D model dimension, E
width of the items' own embeddings, V real items or entries of a vocabulary.
"""

import jax.numpy as jnp
from flax import linen as nn

from cbert.errors import UserError
from cbert.model import item_shards
from cbert.model.config import ModelConfig
from cbert.model.layers import Array, embedding_init, norm
from cbert.model.look_up import look_up, small_look_up


class ItemEmbedding(nn.Module):
    """Item codes to vectors; the table of real items is the output layer's too.

    Codes from 0 are rows of `items [V, D]`, codes -1 (padding), -2 (unknown) and -3 (mask)
    are rows of `special [3, D]`, so that no candidate list ever holds them. Where the config
    has an `item_dimension`, the table is `items [V, E]`, and `projection [E, D]` maps its rows
    (the factorised embedding of ALBERT, section 3.1).

    Attributes:
      config: Sizes and open choices.
      vocabulary: V.
      max_length: The most items of an example.
      shards: The devices that the table and the bias are split over, see `item_shards`.
    """

    config: ModelConfig
    vocabulary: int
    max_length: int
    shards: int = 1

    def setup(self) -> None:
        size, init = self.config.dimension, embedding_init(self.config, self.config.dimension)
        width = self.config.item_dimension or size
        rows = item_shards.row_count(self.vocabulary, self.shards)
        self.items = self.param("items", embedding_init(self.config, width), (rows, width))
        self.special = self.param("special", init, (3, size))
        bias = self.param("bias", nn.initializers.zeros, (rows,))
        self.bias = bias
        if self.shards > 1:
            self.bias = item_shards.without_padding(bias, self.vocabulary)
        if self.config.positions:
            self.positions = self.param("positions", init, (self.max_length, size))
        if self.config.embedding_norm:
            self.norm = norm(self.config)
        if self.config.item_dimension:
            # It leaves the length of a vector as it is, on average.
            keeps_length = nn.initializers.normal(size**-0.5)
            self.projection = self.param("projection", keeps_length, (width, size))

    def __call__(self, codes: Array) -> tuple[Array, Array]:
        """codes `int32 [B, L]` to `[B, L, D]`, and the table `[V, E]` for the output layer.

        Raises:
          UserError: the sequence is longer than there are positions.
        """
        x, table = self._embed(codes)
        if self.config.positions:
            _check_length(codes, self.max_length)
            x = x + self.positions[: codes.shape[1]]
        if self.config.embedding_norm:
            x = self.norm(x)
        return x.astype(self.config.dtype), table

    def embed_items(self, codes: Array) -> Array:
        """Codes `int32 [B, K]` of a context's items to `[B, K, D]`; they have no positions."""
        return self._embed(codes)[0]

    def _embed(self, codes: Array) -> tuple[Array, Array]:
        """The codes' rows in the width D, without positions, and the table again."""
        find = item_shards.look_up if self.shards > 1 else look_up
        real, table = find(self.items, jnp.maximum(codes, 0))
        if self.config.item_dimension:
            real = real @ self.projection
        special = small_look_up(self.special, jnp.maximum(-1 - codes, 0))
        return jnp.where((codes >= 0)[..., None], real, special), table

    def comparable(self, x: Array) -> Array:
        """x `[B, P, D]` to `[B, P, E]`, whose products with the table are those in D."""
        return x @ self.projection.T if self.config.item_dimension else x


class TextEmbedding(nn.Module):
    """BERT's embeddings: the sum of a token's, its segment's and its position's, normalised.

    The table of tokens is the output layer's too.

    Attributes:
      config: Sizes and open choices.
      vocabulary: V, special tokens included.
      max_length: The most tokens of a text.
      segment_count: How many segments a text may have; BERT's pairs have two.
    """

    config: ModelConfig
    vocabulary: int
    max_length: int
    segment_count: int = 2

    def setup(self) -> None:
        size, init = self.config.dimension, embedding_init(self.config, self.config.dimension)
        self.tokens = self.param("tokens", init, (self.vocabulary, size))
        self.segments = self.param("segments", init, (self.segment_count, size))
        if self.config.positions:
            self.positions = self.param("positions", init, (self.max_length, size))
        if self.config.embedding_norm:
            self.norm = norm(self.config)

    def __call__(self, tokens: Array, segments: Array) -> tuple[Array, Array]:
        """tokens and segments `int32 [B, L]` to `[B, L, D]`, and the table `[V, D]`.

        Raises:
          UserError: the text is longer than there are positions.
        """
        _check_length(tokens, self.max_length)
        x, table = look_up(self.tokens, tokens)
        x = x + small_look_up(self.segments, segments)
        if self.config.positions:
            x = x + self.positions[: tokens.shape[1]]
        if self.config.embedding_norm:
            x = self.norm(x)
        return x.astype(self.config.dtype), table


def _check_length(codes: Array, longest: int) -> None:
    if codes.shape[1] > longest:
        raise UserError(
            f"an example has {codes.shape[1]} tokens, and the model has {longest} positions; "
            "cut it"
        )
