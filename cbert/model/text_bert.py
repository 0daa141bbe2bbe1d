"""The model of a text: BERT, with a context or without.

Legend: B examples, L positions, P positions asked for, D model dimension, V entries of the
vocabulary.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.errors import UserError
from cbert.model.config import ModelConfig
from cbert.model.contextual_bert import missing_context
from cbert.model.embeddings import TextEmbedding
from cbert.model.encoder import Encoder, build_encoder
from cbert.model.heads import TextHead
from cbert.model.layers import Array
from cbert.schema import Feature, History


class TextBert(nn.Module):
    """BERT and the head of a task, in one tree of parameters.

    Dropout is active where `apply` is given `rngs={"dropout": key}`.

    Attributes:
      encoder: Tokens and context to hidden states.
      head: Hidden states to what the task needs.
    """

    encoder: Encoder
    head: TextHead

    def setup(self) -> None:
        # Encoder and head name their parameters side by side, without a level of their own.
        nn.share_scope(self, self.encoder)
        nn.share_scope(self, self.head)

    def __call__(
        self,
        tokens: Array,
        segments: Array,
        mask: Array,
        context: dict[str, Array] | None = None,
        positions: Array | None = None,
    ) -> Any:
        """What the head makes of a text.

        Args:
          tokens: `int32 [B, L]`, from 0 to V - 1; `[CLS]` comes first.
          segments: `int32 [B, L]`, 0 for a first text and 1 for a second.
          mask: `bool [B, L]`, False at padding.
          context: Feature name to its coded rows; None where there are no features.
          positions: `int32 [B, P]`, the positions that the head reads, such as the masked ones;
            None for all. The last block computes only what the head reads.

        Returns:
          See the head's class.
        """
        head, queries = self.head, positions
        if not head.reads_positions:
            queries = jnp.zeros((tokens.shape[0], 0), jnp.int32)
        if head.reads_first and queries is not None:
            queries = jnp.pad(queries, ((0, 0), (1, 0)))
        x, table = self.encoder.embedding(tokens, segments)
        x = self.encoder(x, mask, context or {}, queries)
        first = x[:, 0]
        if head.reads_first and queries is not None:
            x = x[:, 1:]
        return head(first, x, table)

    def hidden_states(
        self,
        tokens: Array,
        segments: Array,
        mask: Array,
        context: dict[str, Array],
        positions: Array | None = None,
    ) -> Array:
        """The encoder's output at the positions, `[B, P, D]`; at all of them for None."""
        x, _ = self.encoder.embedding(tokens, segments)
        return self.encoder(x, mask, context, positions)

    def smallest_inputs(self) -> tuple[Any, ...]:
        """Arguments of a call, which initialise the parameters."""
        tokens = jnp.zeros((1, 2), jnp.int32)
        return tokens, tokens, tokens == 0, missing_context(self.encoder.features)


def build(
    config: ModelConfig,
    method: str,
    features: tuple[Feature, ...],
    sizes: tuple[int, ...],
    head: TextHead,
    options: Any = None,
) -> TextBert:
    """A text model.

    Args:
      config: Sizes and open choices; `presets.bert` has BERT's.
      method: Name of the conditioning method.
      features: The schema's context features, none for plain BERT.
      sizes: V, the most tokens of a text, and if not two the number of segments.
      head: The head of the task.
      options: The method's own section; None for its defaults.

    Raises:
      UserError: the method cannot be had, see `build_encoder`, or a feature cannot.
    """
    for feature in features:
        if isinstance(feature, History):
            raise UserError(
                f"context feature {feature.name!r} is a history of items, and a text has none; "
                "make it multi-valued"
            )
    encoder = build_encoder(config, method, features, TextEmbedding, sizes, options)
    return TextBert(encoder, head)
