"""[NP]: the context as one more position (section 3, New Position)."""

import jax.numpy as jnp

from cbert.model.conditioning.method import Method
from cbert.model.layers import dense


class NewPosition(Method):
    """I = [W c, x_1, ..., x_n]; every position may attend to the new first one."""

    def setup(self) -> None:
        self.project = dense(self.hyper, self.hyper.dimension)

    def enter(self, x, mask, context, noise):
        del noise
        x = jnp.concatenate([self.project(context.vector)[:, None], x], axis=1)
        mask = jnp.pad(mask, ((0, 0), (1, 0)), constant_values=True)
        return x, mask, None

    def leave(self, x, g):
        del g
        return x[:, 1:]
