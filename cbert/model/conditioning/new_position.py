"""[NP]: the context as one more position (section 3, New Position)."""

import jax.numpy as jnp

from cbert.model.conditioning.method import Method
from cbert.model.layers import dense


class NewPosition(Method):
    """I = [x_1, ..., x_n, W c]; every position may attend to the new one.

    The paper writes it first. The place makes no difference, for positions are embedded before,
    and last it leaves the items where they are.
    """

    def setup(self) -> None:
        self.project = dense(self.hyper, self.hyper.dimension)

    def enter(self, x, mask, context, noise):
        del noise
        x = jnp.concatenate([x, self.project(context.vector)[:, None]], axis=1)
        mask = jnp.pad(mask, ((0, 0), (0, 1)), constant_values=True)
        return x, mask, None
