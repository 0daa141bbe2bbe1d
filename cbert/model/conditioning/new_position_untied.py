"""[NP] with untied attention: learned logits to and from the context's position."""

import dataclasses

import jax.numpy as jnp
from flax import linen as nn

from cbert.model.conditioning.method import ExtraKeys
from cbert.model.conditioning.new_position import NewPosition
from cbert.model.layers import Array


class NewPositionUntied(NewPosition):
    """[NP], with theta_1 added to the logits of context to token, theta_2 of token to context.

    In the spirit of TUPE (Ke et al. 2020), which unties `[CLS]` from the positions of words by
    two learned logits in place of the positional ones. Here the new position has no positional
    logits to replace, so both are added to those of the content. They are one number a head,
    shared by all blocks as in TUPE, and begin at zero, as [NP]. TUPE has theta_1 in the whole
    row, where the softmax cancels it; here the context's attention to itself is left as it is,
    so that theta_1 weighs the tokens against the context.
    """

    def setup(self) -> None:
        super().setup()
        zeros, heads = nn.initializers.zeros, (self.config.heads, 1, 1)
        self.to_tokens = self.param("to_tokens", zeros, heads)
        self.to_context = self.param("to_context", zeros, heads)

    def keys_values(self, layer: int, state: Array) -> ExtraKeys:
        extra = super().keys_values(layer, state)
        rows, columns = state[:, None], state[None]
        if layer == self.config.layers - 1:  # Its queries are tokens, never the new position.
            rows = jnp.zeros((1, 1))
        bias = self.to_tokens * rows * (1 - columns) + self.to_context * (1 - rows) * columns
        if extra.bias is not None:
            bias = bias + extra.bias
        return dataclasses.replace(extra, bias=bias)
