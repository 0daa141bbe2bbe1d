"""Late fusion: the context joins the last block's output."""

from typing import Any

import jax.numpy as jnp

from cbert.model.conditioning.method import Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import FNN, Array, dense


class LateConcat(Method):
    """h = W [h; c̃] after the last block, with c̃ = FNN(c): the blocks never see the context.

    It is the usual way to join a text with a table's columns, and shows what a context adds
    when no attention depends on it.

    With `model.start_as_plain` it is h + W [h; c̃], and W begins at zero.
    """

    starts_as_plain = True
    zero_is_plain = ("out",)

    def setup(self) -> None:
        config = self.config
        self.state = FNN(config, config.dimension)
        self.out = dense(config, config.dimension, zero=config.start_as_plain)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        return x, mask, self.state(context.vector)

    def finish(self, x: Array, state: Any) -> Array:
        c = jnp.broadcast_to(state[:, None], x.shape)
        y = self.out(jnp.concatenate([x, c], axis=-1))
        return x + y if self.config.start_as_plain else y

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        return sizes.context * size + size**2 + sizes.queries * 2 * size**2
