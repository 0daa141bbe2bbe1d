"""The encoder: the paper's Figure 1, with the context entering through a method's hooks.

Legend: B examples, L positions, P query positions, D model dimension.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.errors import UserError
from cbert.model import conditioning
from cbert.model.attention import Attention
from cbert.model.conditioning.method import ATTENTION, FEED_FORWARD, ExtraKeys, Method
from cbert.model.config import ModelConfig
from cbert.model.context import Context, ContextEncoder
from cbert.model.layers import FNN, AddAndNorm, Array, Dropout
from cbert.model.look_up import at_positions
from cbert.schema import Feature

# What `__call__` sows into the collection `intermediates`: the input of the first block, then
# each block's output, `[B, L, D]` with the positions that the method added at their end; of the
# last block `[B, P, D]`, the positions that are asked for.
HIDDEN_STATES = "hidden_states"


class Block(nn.Module):
    """One block; the method decides how its two sub-layers are added and normalised."""

    config: ModelConfig

    def setup(self) -> None:
        self.attention = Attention(self.config)
        self.attention_norm = AddAndNorm(self.config)
        self.fnn = FNN(self.config, self.config.feed_forward, self.config.activation)
        self.fnn_norm = AddAndNorm(self.config)

    def attend(self, queries: Array, x: Array, mask: Array, extra: ExtraKeys) -> Array:
        """queries `[B, P, D]` read x `[B, L, D]` and the method's extra keys: `[B, P, D]`."""
        if extra.x is not None:
            shown = extra.mask
            if shown is None:
                shown = jnp.ones(extra.x.shape[:2], bool)
            x = jnp.concatenate([x, extra.x], axis=1)
            mask = jnp.concatenate([mask, shown], axis=1)
        if extra.visible is not None:
            mask = mask[:, None] & extra.visible
        return self.attention(queries, x, mask, extra.bias)


class Encoder(nn.Module):
    """Tokens and a context to the last block's output.

    Attributes:
      config: Sizes and open choices.
      method: The class of the conditioning method, whose hooks let the context in.
      options: The method's own section of the config.
      features: The schema's context features.
      embedding_class: Maps tokens to `[B, L, D]`, and has the table of the output layer.
      embedding_sizes: Its arguments after the config, such as V and the most tokens.
    """

    config: ModelConfig
    method: type[Method]
    options: Any
    features: tuple[Feature, ...]
    embedding_class: type[nn.Module]
    embedding_sizes: tuple[int, ...]

    def setup(self) -> None:
        self.embedding = self.embedding_class(self.config, *self.embedding_sizes)
        self.conditioning = self.method(self.config, self.options)
        self.dropout = Dropout(self.config)
        self.context_encoder = ContextEncoder(self.config, self.features)
        self.blocks = [Block(self.config) for _ in range(self.config.layers)]

    def __call__(
        self, x: Array, mask: Array, context: dict[str, Array], queries: Array | None = None
    ) -> Array:
        """The last block's output at the queried positions.

        Args:
          x: `[B, L, D]`, embedded tokens.
          mask: `bool [B, L]`, True where there is a token.
          context: Feature name to its coded rows.
          queries: `int32 [B, P]`, the positions to compute, or None for all of them.

        Returns:
          `[B, P, D]`; without queries `[B, L, D]`.
        """
        length = x.shape[1]
        x = self.dropout(x)
        x, mask, state = self.conditioning.begin(x, mask, self.embed_context(context))
        self.sow("intermediates", HIDDEN_STATES, x)
        run_block = Encoder._run_block
        if self.config.remat:
            run_block = nn.remat(run_block, static_argnums=(1, 2))
        for layer in range(self.config.layers):
            x, state = run_block(self, layer, length, x, mask, state, queries)
            self.sow("intermediates", HIDDEN_STATES, x)
        return self.conditioning.finish(x, state)

    def _run_block(
        self,
        layer: int,
        length: int,
        x: Array,
        mask: Array,
        state: Any,
        queries: Array | None,
    ) -> tuple[Array, Any]:
        """Block `layer` with the method's hooks around it: the next x and state.

        `length` is L, without the positions that the method added.
        """
        method, block, last = self.conditioning, self.blocks[layer], self.config.layers - 1
        keys = method.sublayer_input(layer, ATTENTION, x, state)
        extra, chosen, shown = method.keys_values(layer, state), keys, mask
        if layer == last:  # Other positions are only keys and values of the last block.
            if queries is None:
                x, chosen, mask = x[:, :length], keys[:, :length], mask[:, :length]
            else:
                x, chosen = at_positions(x, queries), at_positions(keys, queries)
                mask = jnp.take_along_axis(mask, queries, axis=1)
            extra = _of_queries(extra, length, queries)
        y = block.attend(chosen, keys, shown, extra)
        x = method.residual(layer, ATTENTION, x, y, state, block.attention_norm)
        x = method.after_attention(layer, x, mask, state)
        y = block.fnn(method.sublayer_input(layer, FEED_FORWARD, x, state))
        x = method.residual(layer, FEED_FORWARD, x, y, state, block.fnn_norm)
        return x, method.update(layer, x, mask, state) if layer < last else state

    def embed_context(self, context: dict[str, Array]) -> Context:
        """The context of a method, from each feature's coded rows by its name."""
        # A lambda, because the embedding of texts has no `embed_items`, and never needs it.
        return self.context_encoder(context, lambda codes: self.embedding.embed_items(codes))


def _of_queries(extra: ExtraKeys, length: int, queries: Array | None) -> ExtraKeys:
    """The extra keys with the rows of the queries `[B, P]` alone, or of all tokens for None."""
    visible, bias = extra.visible, extra.bias
    if visible is not None:
        visible = visible[slice(length) if queries is None else queries]
    if bias is not None:
        bias = jnp.expand_dims(bias, tuple(range(4 - bias.ndim)))
        if bias.shape[2] > 1:
            rows = jnp.arange(length)[None] if queries is None else queries
            bias = jnp.take_along_axis(bias, rows[:, None, :, None], axis=2)
    return dataclasses.replace(extra, visible=visible, bias=bias)


def build_encoder(
    config: ModelConfig,
    method: str,
    features: tuple[Feature, ...],
    embedding_class: type[nn.Module],
    embedding_sizes: tuple[int, ...],
    options: Any,
) -> Encoder:
    """The encoder with a conditioning method.

    Args:
      config: Sizes and open choices.
      method: Name of the conditioning method.
      features: The schema's context features.
      embedding_class, embedding_sizes: See `Encoder`.
      options: The method's own section; None for its defaults.

    Raises:
      UserError: the method does not exist, has no context to condition on, or cannot start as
        the plain model.
    """
    cls = conditioning.method_class(method)
    options = conditioning.default_options(method) if options is None else options
    if cls.reads_context(options) and not features:
        raise UserError(
            f"model.method is {method!r}, but the data have no context features; "
            "set model.method=none, or give the records a context"
        )
    if config.start_as_plain and not cls.starts_as_plain:
        names = [name for name, each in conditioning.METHODS.items() if each.starts_as_plain]
        raise UserError(
            f"model.start_as_plain is true, but the method {method!r} has no form that starts "
            f"as the plain model; set model.start_as_plain=false, or use one of "
            f"{', '.join(names)}"
        )
    return Encoder(config, cls, options, features, embedding_class, embedding_sizes)
