"""[NP]: the context as one more position (section 3, New Position)."""

import jax.numpy as jnp

from cbert.model.conditioning.method import Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, dense


class NewPosition(Method):
    """I = [x_1, ..., x_n, W c]; every position may attend to the new one.

    The paper writes it first. Where it stands makes no difference, because positions are
    embedded before, and in the last place it leaves the tokens where they are.
    """

    def setup(self) -> None:
        self.project = dense(self.config, self.config.dimension)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, None]:
        x = jnp.concatenate([x, self.project(context.vector)[:, None]], axis=1)
        mask = jnp.pad(mask, ((0, 0), (0, 1)), constant_values=True)
        return x, mask, None

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return sizes.context * sizes.config.dimension

    @classmethod
    def extra_positions(cls, sizes: Sizes) -> float:
        del sizes
        return 1.0
