"""The context beside the items in every layer (SSE-PT).

Legend: D model dimension, d_c entries of the context and d_i = D - d_c of the item.
"""

import dataclasses

import jax.numpy as jnp

from cbert.config import field
from cbert.errors import UserError
from cbert.model.conditioning.method import Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, dense


@dataclasses.dataclass(frozen=True)
class UserConcatConfig:
    """The context beside each item, in a part of the model's width."""

    fraction: float = field(
        0.5,
        "the fraction of D that the context fills, rounded to at least one entry and at most "
        "D - 1; the item fills the rest",
        above=0,
        below=1,
    )


class UserConcat(Method):
    """I = [W x; V c] at every position: x is projected to d_i entries and c to d_c.

    In SSE-PT (Wu et al. 2020, "SSE-PT: Sequential Recommendation Via Personalized
    Transformer") the embeddings of item and user stand side by side, and all layers have the
    width d_i + d_c of both. Here the width of the encoder is D = d_i + d_c, so that blocks and
    output layer stay as they are, and the item's embedding, which has D entries, is projected.
    The context enters once; residuals carry it through the layers, as they do there. It is [C]
    with a matrix of two blocks: item and context share no entry before the first attention.
    SSE-PT's regulariser is `train.context_replacement`.

    With `model.start_as_plain` it is I = x + [W x; V c], and W and V begin at zero.
    """

    Config = UserConcatConfig
    starts_as_plain = True
    zero_is_plain = ("items", "context")

    def setup(self) -> None:
        config = self.config
        width, plain = context_width(config.dimension, self.options), config.start_as_plain
        self.items = dense(config, config.dimension - width, zero=plain)
        self.context = dense(config, width, zero=plain)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, None]:
        c = self.context(context.vector)[:, None]
        c = jnp.broadcast_to(c, (*x.shape[:2], c.shape[2]))
        y = jnp.concatenate([self.items(x), c], axis=-1)
        return x + y if self.config.start_as_plain else y, mask, None

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        width = context_width(size, sizes.options)
        return sizes.context * width + sizes.length * size * (size - width)


def context_width(size: int, options: UserConcatConfig) -> int:
    """d_c, the entries of D that the context fills; raises `UserError` for a D of 1."""
    if size < 2:
        raise UserError(
            f"model.dimension is {size}, and user_concat divides it between item and context; "
            "set model.dimension to at least 2"
        )
    return min(max(round(options.fraction * size), 1), size - 1)
