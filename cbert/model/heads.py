"""What is asked of an encoder: from its hidden states to the numbers that a task needs.

Legend: B examples, P positions, D model dimension, V real items or entries of a vocabulary, N
labels.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct

from cbert.model.config import ModelConfig
from cbert.model.layers import ACTIVATIONS, Array, Dropout, dense, norm


def output_layer(config: ModelConfig, features: int) -> nn.Dense:
    """A dense layer in float32, because logits that are rounded to bfloat16 would often tie."""
    return dense(dataclasses.replace(config, dtype="float32"), features)


class MaskedItemHead(nn.Module):
    """The dense layer before the output layer, which is the embedding's table transposed.

    The logits themselves are left to the loss, which never holds them whole.
    """

    config: ModelConfig

    def setup(self) -> None:
        self.transform = dense(self.config, self.config.dimension)
        if self.config.transform_norm:
            self.transform_norm = norm(self.config)

    def __call__(self, x: Array) -> Array:
        """x `[B, P, D]` to `float32 [B, P, D]`, to be compared with every item's row."""
        x = ACTIVATIONS[self.config.transform_activation](self.transform(x))
        if self.config.transform_norm:
            x = self.transform_norm(x)
        return x.astype(jnp.float32)


class TextHead(nn.Module):
    """A head of a text model: it reads a text's first position, other positions, or both.

    What a head returns is float32.

    Attributes:
      config: Sizes and open choices.
    """

    config: ModelConfig

    @property
    def reads_first(self) -> bool:
        """Whether it reads the position of `[CLS]`."""
        return True

    @property
    def reads_positions(self) -> bool:
        """Whether it reads the positions that the caller names."""
        return True

    @property
    def architecture(self) -> str:
        """The class of `transformers` that has the same parameters."""
        raise NotImplementedError

    def __call__(self, first: Array, x: Array, table: Array) -> Any:
        """first `[B, D]`, x `[B, P, D]` and the token table `[V, D]`.

        The first two may hold anything where a head does not read them.
        """
        raise NotImplementedError


class Pooler(nn.Module):
    """tanh(W x + b) of the first position."""

    config: ModelConfig

    @nn.compact
    def __call__(self, first: Array) -> Array:
        """`[B, D]` to `[B, D]`."""
        return nn.tanh(dense(self.config, self.config.dimension, "dense")(first))


class HiddenStatesHead(TextHead):
    """The last hidden states and the pooled first one, as they are."""

    architecture = "BertModel"

    def setup(self) -> None:
        self.pooler = Pooler(self.config)

    def __call__(self, first: Array, x: Array, table: Array) -> tuple[Array, Array]:
        """Hidden states `float32 [B, P, D]` and the pooled one `float32 [B, D]`."""
        return x.astype(jnp.float32), self.pooler(first).astype(jnp.float32)


@struct.dataclass
class Pretraining:
    """What BERT's pretraining asks for.

    Attributes:
      vectors: `float32 [B, P, D]`; a token's logit is its row of `table` times the vector,
        plus its `bias`. The logits are left to the loss, which never holds them whole.
      table: `float32 [V, D]`, the embeddings of the tokens.
      bias: `float32 [V]`.
      next_sentence: `float32 [B, 2]`, the logits of "the second text follows the first" and
        "it is a random one"; None where the model does not predict it.
    """

    vectors: Array
    table: Array
    bias: Array
    next_sentence: Array | None


class PretrainingHead(TextHead):
    """Masked tokens, and whether a text's second sentence follows its first (BERT, 3.1)."""

    vocabulary: int
    next_sentence: bool = True

    def setup(self) -> None:
        self.masked = MaskedItemHead(self.config)
        nn.share_scope(self, self.masked)
        self.bias = self.param("output_bias", nn.initializers.zeros, (self.vocabulary,))
        if self.next_sentence:
            self.pooler = Pooler(self.config)
            self.next_sentence_classifier = output_layer(self.config, 2)

    @property
    def reads_first(self) -> bool:
        return self.next_sentence

    @property
    def architecture(self) -> str:
        return "BertForPreTraining" if self.next_sentence else "BertForMaskedLM"

    def __call__(self, first: Array, x: Array, table: Array) -> Pretraining:
        logits = None
        if self.next_sentence:
            logits = self.next_sentence_classifier(self.pooler(first))
        return Pretraining(self.masked(x), table, self.bias, logits)


class ClassificationHead(TextHead):
    """Logits of a text's labels, or its regression value where there is one label."""

    reads_positions = False
    architecture = "BertForSequenceClassification"

    labels: int

    def setup(self) -> None:
        self.pooler, self.head_dropout = Pooler(self.config), Dropout(self.config)
        self.classifier = output_layer(self.config, self.labels)

    def __call__(self, first: Array, x: Array, table: Array) -> Array:
        """`float32 [B, N]`."""
        return self.classifier(self.head_dropout(self.pooler(first)))


class TaggingHead(TextHead):
    """Logits of each token's labels."""

    reads_first = False
    architecture = "BertForTokenClassification"

    labels: int

    def setup(self) -> None:
        self.head_dropout = Dropout(self.config)
        self.classifier = output_layer(self.config, self.labels)

    def __call__(self, first: Array, x: Array, table: Array) -> Array:
        """`float32 [B, P, N]`."""
        return self.classifier(self.head_dropout(x))


class SpanHead(TextHead):
    """Logits of a span's first and last token."""

    reads_first = False
    architecture = "BertForQuestionAnswering"

    def setup(self) -> None:
        self.span = output_layer(self.config, 2)

    def __call__(self, first: Array, x: Array, table: Array) -> Array:
        """`float32 [B, P, 2]`: first, last."""
        return self.span(x)
