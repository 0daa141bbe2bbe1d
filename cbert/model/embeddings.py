"""Embeddings: the codes of tokens become the vectors that the first block reads.

Legend: B examples, L positions, D model dimension, E width of the items' own embeddings, V real
items or entries of a vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from cbert.errors import UserError
from cbert.model.config import ModelConfig
from cbert.model.layers import Array, embedding_init, norm


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
    """

    config: ModelConfig
    vocabulary: int
    max_length: int

    def setup(self) -> None:
        size, init = self.config.dimension, embedding_init(self.config, self.config.dimension)
        width = self.config.item_dimension or size
        items_init = embedding_init(self.config, width)
        self.items = self.param("items", items_init, (self.vocabulary, width))
        self.special = self.param("special", init, (3, size))
        self.bias = self.param("bias", nn.initializers.zeros, (self.vocabulary,))
        if self.config.positions:
            self.positions = self.param("positions", init, (self.max_length, size))
        if self.config.embedding_norm:
            self.norm = norm(self.config)
        if self.config.item_dimension:
            # It leaves the length of a vector as it is, on average.
            keeps_length = nn.initializers.normal(size**-0.5)
            self.projection = self.param("projection", keeps_length, (width, size))

    def __call__(self, codes: Array) -> tuple[Array, Array]:
        """codes `int32 [B, L]` to `[B, L, D]`, and the table `[V, E]` for the output layer."""
        real, table = look_up(self.items, jnp.maximum(codes, 0))
        x = self._with_special(codes, real)
        if self.config.positions:
            x = x + self.positions[: codes.shape[1]]
        if self.config.embedding_norm:
            x = self.norm(x)
        return x.astype(self.config.dtype), table

    def embed_items(self, codes: Array) -> Array:
        """Codes `int32 [B, K]` of a context's items to `[B, K, D]`; they have no positions."""
        return self._with_special(codes, self.items[jnp.maximum(codes, 0)])

    def _with_special(self, codes: Array, real: Array) -> Array:
        """Rows of `items` in the width D, and special ones where the codes are below zero."""
        if self.config.item_dimension:
            real = real @ self.projection
        special = self.special[jnp.maximum(-1 - codes, 0)]
        return jnp.where((codes >= 0)[..., None], real, special)

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
        if tokens.shape[1] > self.max_length:
            raise UserError(
                f"a text has {tokens.shape[1]} tokens, and the model has {self.max_length} "
                "positions; cut the text"
            )
        x, table = look_up(self.tokens, tokens)
        x = x + self.segments[segments]
        if self.config.positions:
            x = x + self.positions[: tokens.shape[1]]
        if self.config.embedding_norm:
            x = self.norm(x)
        return x.astype(self.config.dtype), table


@jax.custom_vjp
def look_up(table: Array, codes: Array) -> tuple[Array, Array]:
    """`table[codes]`, and the table again for whatever else uses it.

    The gradient of that second result comes back first, and the rows' gradients are added into
    it, so that there is never another gradient of the table's size.
    """
    return table[codes], table


def _look_up_forward(table: Array, codes: Array) -> tuple[tuple[Array, Array], Array]:
    return look_up(table, codes), codes


def _look_up_backward(codes: Array, gradients: tuple[Array, Array]) -> tuple[Array, None]:
    d_rows, d_table = gradients
    return d_table.at[codes].add(d_rows), None


look_up.defvjp(_look_up_forward, _look_up_backward)
