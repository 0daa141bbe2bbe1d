"""The encoder: the paper's Figure 1, with the context entering through a method's doors.

Legend: B examples, L positions, P hidden positions, D model dimension, V real items.
"""

import functools
import math

import flax
import jax
import jax.numpy as jnp
from flax import linen as nn

from cbert.errors import UserError
from cbert.model import conditioning
from cbert.model.attention import Attention
from cbert.model.context import ContextEncoder
from cbert.model.layers import (
    FNN,
    AddAndNorm,
    Array,
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

    def __call__(self, codes: Array) -> tuple[Array, Array]:
        """codes `int32 [B, L]` to `[B, L, D]`, and the table for the output layer."""
        real, table = look_up(self.items, jnp.maximum(codes, 0))
        special = self.special[jnp.maximum(-1 - codes, 0)]
        x = jnp.where((codes >= 0)[..., None], real, special)
        if self.hyper.positions:
            x = x + self.positions[: codes.shape[1]]
        return x.astype(self.hyper.dtype), table


@jax.custom_vjp
def look_up(table: Array, codes: Array) -> tuple[Array, Array]:
    """`table[codes]`, and the table again for whatever else uses it.

    Through that second result its gradient comes back first, and the rows' are added into it:
    there is never another gradient of the table's size.
    """
    return table[codes], table


def _look_up_forward(table, codes):
    return look_up(table, codes), codes


def _look_up_backward(codes, gradients):
    d_rows, d_table = gradients
    return d_table.at[codes].add(d_rows), None


look_up.defvjp(_look_up_forward, _look_up_backward)


class Block(nn.Module):
    """One block; `read` is the method's door between attention and FNN."""

    hyper: Hyperparameters

    def setup(self) -> None:
        self.attention = Attention(self.hyper)
        self.attention_norm = AddAndNorm(self.hyper)
        self.fnn = FNN(self.hyper, self.hyper.feed_forward)
        self.fnn_norm = AddAndNorm(self.hyper)

    def attend(self, queries: Array, x: Array, mask: Array, noise: Array | None) -> Array:
        return self.attention_norm(queries, self.attention(queries, x, mask), noise)

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
    ) -> tuple[Array, Array, Array]:
        """What the model holds of each hidden item, and what to compare it with.

        Args:
          codes: `int32 [B, L]` item codes, hidden ones masked, padded with -1.
          context: Feature name to its coded rows.
          hidden: `int32 [B, P]`, the positions asked for.
          noise: `uint32 []` for dropout, None to leave it off.

        Returns:
          `float32 [B, P, D]`, and the last dense layer, tied to the embedding: table
          `[V, D]` and bias `[V]`.
        """
        x, table = self.embedding(codes)
        x = self.encode(x, codes != PAD_ITEM, context, hidden, noise)
        activation = nn.relu if self.hyper.transform_activation == "relu" else nn.gelu
        x = activation(self.transform(x)).astype(jnp.float32)
        return x, table, self.embedding.bias

    def encode(
        self,
        x: Array,
        mask: Array,
        context: dict[str, Array],
        hidden: Array,
        noise: Array | None = None,
    ) -> Array:
        """Embedded items `[B, L, D]` to the last block's output where asked, `[B, P, D]`."""
        method, last = self.conditioning, self.hyper.layers - 1
        x = self.dropout(x, noise)
        x, mask, g = method.enter(x, mask, self.context_encoder(context), noise)
        for layer, block in enumerate(self.blocks):
            shown, queries = mask, x
            if layer == last:  # Of the other positions only keys and values are needed.
                queries = jnp.take_along_axis(x, hidden[..., None], axis=1)
                mask = jnp.take_along_axis(mask, hidden, axis=1)
            x = block.attend(queries, x, shown, noise)
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
    name = conditioning.short_name(method)
    return ContextualBert(hyper, name, len(schema.items), schema.max_items, schema.features)


@functools.partial(jax.jit, static_argnums=0)
def initialize(model: ContextualBert, key: Array) -> dict:
    """Fresh parameters, float32."""
    codes = jnp.zeros((1, 2), jnp.int32)
    context = {feature.name: jnp.asarray(feature.encode([None])) for feature in model.features}
    return model.init(key, codes, context, codes[:, :1])["params"]


def shapes(model: ContextualBert) -> dict:
    """The parameters' shapes and dtypes; nothing is computed."""
    return jax.eval_shape(lambda key: initialize(model, key), jax.random.key(0))


def parameter_sizes(model: ContextualBert) -> dict[tuple[str, ...], int]:
    """Parameter's path to its number of entries."""
    flat = flax.traverse_util.flatten_dict(shapes(model))
    return {path: math.prod(leaf.shape) for path, leaf in flat.items()}


def count(model: ContextualBert) -> int:
    """How many parameters Table 1 counts."""
    return sum(size for path, size in parameter_sizes(model).items() if counted(path))


def counted(path: tuple[str, ...]) -> bool:
    """Whether Table 1 counts a parameter: all but context embeddings and the last layer.

    The item embeddings are the last layer, which is tied to them.
    """
    return path[0] not in ("embedding", "context_encoder")
