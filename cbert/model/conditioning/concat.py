"""[C]: the context concatenated to every position (section 3, Concat)."""

import jax.numpy as jnp
from flax import linen as nn

from cbert.model.conditioning.method import Method
from cbert.model.layers import dense


class Concat(Method):
    """I = W [x; c] at every position.

    The paper writes one matrix; its count has one more dense layer: c is first projected to D,
    so that all stays linear, or, with `concat = fnn`, W is an FNN (C + D) to D to D.
    """

    def setup(self) -> None:
        self.items = dense(self.hyper, self.hyper.dimension, bias=False)
        self.context = dense(self.hyper, self.hyper.dimension)
        self.out = dense(self.hyper, self.hyper.dimension)

    def enter(self, x, mask, context, noise):
        del noise
        c = self.context(context.vector)[:, None]
        if self.hyper.concat == "project":
            c = jnp.broadcast_to(c, x.shape)
            return self.out(jnp.concatenate([x, c], axis=-1)), mask, None
        # W1 [x; c] is a sum of two products: c is multiplied once an example.
        return self.out(nn.relu(self.items(x) + c)), mask, None
