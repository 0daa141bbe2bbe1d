"""[C]: the context concatenated to every position (section 3, Concat)."""

import dataclasses

import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field
from cbert.model.conditioning.method import Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, dense


@dataclasses.dataclass(frozen=True)
class ConcatConfig:
    """The method [C]."""

    reading: str = field(
        "project",
        "`project` maps c to D, then [x; c] from 2 D to D; `fnn` is (C + D) to D to D",
        choices=("project", "fnn"),
    )


class Concat(Method):
    """I = W [x; c] at every position.

    The paper writes one matrix; its count has one more dense layer. By default c is first
    projected to D, so that all stays linear; with `reading = fnn`, W is an FNN from C + D to D
    to D.

    With `model.start_as_plain` it is I = x + W [x; c], and W begins at zero.
    """

    Config = ConcatConfig
    starts_as_plain = True
    zero_is_plain = ("out",)

    def setup(self) -> None:
        self.items = dense(self.config, self.config.dimension, bias=False)
        self.context = dense(self.config, self.config.dimension)
        plain = self.config.start_as_plain
        self.out = dense(self.config, self.config.dimension, zero=plain)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, None]:
        c = self.context(context.vector)[:, None]
        if self.options.reading == "project":
            c = jnp.broadcast_to(c, x.shape)
            y = self.out(jnp.concatenate([x, c], axis=-1))
        else:  # W1 [x; c] is a sum of two products, so c is multiplied once an example.
            y = self.out(nn.relu(self.items(x) + c))
        return x + y if self.config.start_as_plain else y, mask, None

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        return sizes.context * size + sizes.length * 2 * size**2
