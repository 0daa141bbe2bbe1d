"""Embeddings: the codes of tokens become the vectors that the first block reads.

Legend: B examples, L positions, D model dimension, V real items or entries of a vocabulary.
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
    are rows of `special [3, D]`, so that no candidate list ever holds them.

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
        self.items = self.param("items", init, (self.vocabulary, size))
        self.special = self.param("special", init, (3, size))
        self.bias = self.param("bias", nn.initializers.zeros, (self.vocabulary,))
        if self.config.positions:
            self.positions = self.param("positions", init, (self.max_length, size))
        if self.config.embedding_norm:
            self.norm = norm(self.config)

    def __call__(self, codes: Array) -> tuple[Array, Array]:
        """codes `int32 [B, L]` to `[B, L, D]`, and the table `[V, D]` for the output layer."""
        real, table = look_up(self.items, jnp.maximum(codes, 0))
        special = self.special[jnp.maximum(-1 - codes, 0)]
        x = jnp.where((codes >= 0)[..., None], real, special)
        if self.config.positions:
            x = x + self.positions[: codes.shape[1]]
        if self.config.embedding_norm:
            x = self.norm(x)
        return x.astype(self.config.dtype), table

    def embed_items(self, codes: Array) -> Array:
        """Codes `int32 [B, K]` of a context's items to `[B, K, D]`; they have no positions."""
        special = self.special[jnp.maximum(-1 - codes, 0)]
        return jnp.where((codes >= 0)[..., None], self.items[jnp.maximum(codes, 0)], special)


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
