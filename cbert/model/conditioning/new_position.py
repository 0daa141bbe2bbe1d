"""[NP]: the context as one more position (section 3, New Position)."""

import jax.numpy as jnp
from flax import linen as nn

from cbert.model.conditioning.method import ExtraKeys, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, dense

# A gate begins here and never counts for less, because its logarithm is taken.
CLOSED = 1e-12


class NewPosition(Method):
    """I = [x_1, ..., x_n, W c]; every position may attend to the new one.

    The paper writes it first. Where it stands makes no difference, because positions are
    embedded before, and as the last one it leaves the tokens where they are.

    With `model.start_as_plain` each head of each block multiplies the new position's attention
    weight, before the weights are normalised, by the absolute value of a learned gate. The gate
    begins at 1e-12: the position is not seen, and yet the gate's gradient is of usual size.
    """

    starts_as_plain = True

    def setup(self) -> None:
        config = self.config
        self.project = dense(config, config.dimension)
        if config.start_as_plain:
            closed = nn.initializers.constant(CLOSED)
            self.gates = self.param("gates", closed, (config.layers, config.heads))

    def begin(
        self, x: Array, mask: Array, context: Context
    ) -> tuple[Array, Array, Array | None]:
        """The state is `float32 [L + 1]`, 1 at the new position, where there are gates."""
        x = jnp.concatenate([x, self.project(context.vector)[:, None]], axis=1)
        mask = jnp.pad(mask, ((0, 0), (0, 1)), constant_values=True)
        if not self.config.start_as_plain:
            return x, mask, None
        return x, mask, jnp.zeros(x.shape[1]).at[-1].set(1.0)

    def keys_values(self, layer: int, state: Array | None) -> ExtraKeys:
        if state is None:
            return ExtraKeys()
        gate = jnp.maximum(jnp.abs(self.gates[layer]), CLOSED)
        return ExtraKeys(bias=jnp.log(gate)[:, None, None] * state)

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return sizes.context * sizes.config.dimension

    @classmethod
    def extra_positions(cls, sizes: Sizes) -> float:
        del sizes
        return 1.0
