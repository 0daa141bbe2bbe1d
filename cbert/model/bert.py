"""The encoder: the paper's Figure 1, with the context entering through a method's doors.

Legend: B examples, L positions, P hidden positions, D model dimension, V real items.
"""

import jax.numpy as jnp
from flax import linen as nn

from cbert.errors import UserError
from cbert.model import conditioning
from cbert.model.context import ContextEncoder
from cbert.model.layers import (
    FNN,
    AddAndNorm,
    Array,
    Attention,
    Dropout,
    Hyperparameters,
    dense,
    embedding_init,
)
from cbert.schema import PAD_ITEM, Feature, Schema


class Embedding(nn.Module):
    """Item codes to vectors; the table of real items is the output layer's too.

    Codes from 0 are rows of `items [V, D]`, codes -1 (padding), -2 (unknown) and -3 (mask)
    are rows of `special [3, D]`, so that no candidate list ever holds them.
    """

    hyper: Hyperparameters
    vocabulary: int
    max_items: int

    def setup(self) -> None:
        size, init = self.hyper.dimension, embedding_init(self.hyper, self.hyper.dimension)
        self.items = self.param("items", init, (self.vocabulary, size))
        self.special = self.param("special", init, (3, size))
        self.bias = self.param("bias", nn.initializers.zeros, (self.vocabulary,))
        if self.hyper.positions:
            self.positions = self.param("positions", init, (self.max_items, size))

    def __call__(self, codes: Array) -> Array:
        """codes `int32 [B, L]` to `[B, L, D]`."""
        real = self.items[jnp.maximum(codes, 0)]
        special = self.special[jnp.maximum(-1 - codes, 0)]
        x = jnp.where((codes >= 0)[..., None], real, special)
        if self.hyper.positions:
            x = x + self.positions[: codes.shape[1]]
        return x.astype(self.hyper.dtype)


class Block(nn.Module):
    """One block; `read` is the method's door between attention and FNN."""

    hyper: Hyperparameters

    def setup(self) -> None:
        self.attention = Attention(self.hyper)
        self.attention_norm = AddAndNorm(self.hyper)
        self.fnn = FNN(self.hyper, self.hyper.feed_forward)
        self.fnn_norm = AddAndNorm(self.hyper)

    def attend(self, x: Array, mask: Array, noise: Array | None) -> Array:
        return self.attention_norm(x, self.attention(x, mask), noise)

    def feed_forward(self, x: Array, noise: Array | None) -> Array:
        return self.fnn_norm(x, self.fnn(x), noise)


class ContextualBert(nn.Module):
    """Pr(hidden item | visible items, context).

    Attributes:
      hyper: Sizes and open choices.
      method: Short name of the conditioning method.
      vocabulary: V, real items.
      max_items: The most items of an example.
      features: The schema's context features.
    """

    hyper: Hyperparameters
    method: str
    vocabulary: int
    max_items: int
    features: tuple[Feature, ...]

    def setup(self) -> None:
        self.embedding = Embedding(self.hyper, self.vocabulary, self.max_items)
        self.dropout = Dropout(self.hyper.dropout)
        self.context_encoder = ContextEncoder(self.hyper, self.features)
        self.conditioning = conditioning.method_class(self.method)(self.hyper)
        self.blocks = [Block(self.hyper) for _ in range(self.hyper.layers)]
        self.transform = dense(self.hyper, self.hyper.dimension)

    def __call__(
        self,
        codes: Array,
        context: dict[str, Array],
        hidden: Array,
        noise: Array | None = None,
    ) -> Array:
        """What the model holds of each hidden item, to be compared with the output table.

        Args:
          codes: `int32 [B, L]` item codes, hidden ones masked, padded with -1.
          context: Feature name to its coded rows.
          hidden: `int32 [B, P]`, the positions asked for.
          noise: `uint32 []` for dropout, None to leave it off.

        Returns:
          `float32 [B, P, D]`.
        """
        x = self.encode(codes, context, noise)
        x = jnp.take_along_axis(x, hidden[..., None], axis=1)
        activation = nn.relu if self.hyper.transform_activation == "relu" else nn.gelu
        return activation(self.transform(x)).astype(jnp.float32)

    def encode(
        self, codes: Array, context: dict[str, Array], noise: Array | None = None
    ) -> Array:
        """The last block's output `[B, L, D]`."""
        method, last = self.conditioning, self.hyper.layers - 1
        mask = codes != PAD_ITEM
        x = self.dropout(self.embedding(codes), noise)
        x, mask, g = method.enter(x, mask, self.context_encoder(context), noise)
        for layer, block in enumerate(self.blocks):
            x = block.attend(x, mask, noise)
            x = method.read(layer, x, mask, g, noise)
            x = block.feed_forward(x, noise)
            if layer < last:
                g = method.update(layer, x, mask, g, noise)
        return method.leave(x, g)


def build(hyper: Hyperparameters, method: str, schema: Schema) -> ContextualBert:
    """The model for a data set's schema.

    Raises:
      UserError: the method does not exist, or has no context to condition on.
    """
    if conditioning.method_class(method) is not conditioning.NoContext and not schema.features:
        raise UserError(
            f"model.method is {method!r}, but the data have no context features; "
            "use the method none, or give the records a context"
        )
    return ContextualBert(hyper, method, len(schema.items), schema.max_items, schema.features)


def initialize(model: ContextualBert, key: Array) -> dict:
    """Fresh parameters, float32."""
    codes = jnp.zeros((1, 2), jnp.int32)
    context = {feature.name: jnp.asarray(feature.encode([None])) for feature in model.features}
    return model.init(key, codes, context, codes[:, :1])["params"]


def output_layer(params: dict) -> tuple[Array, Array]:
    """The tied table `[V, D]` and bias `[V]` of the last dense layer."""
    return params["embedding"]["items"], params["embedding"]["bias"]


def counted(path: tuple[str, ...]) -> bool:
    """Whether Table 1 counts a parameter: all but context embeddings and the last layer.

    The item embeddings are the last layer, which is tied to them.
    """
    return path[0] not in ("embedding", "context_encoder")
