"""[NP]: the context as one more position (section 3, New Position).

Legend: B examples, L positions, K new positions, D model dimension.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.model.attention import WEIGHTS
from cbert.model.conditioning.method import TOKENS, ExtraKeys, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, dense
from cbert.schema import Feature

CONTEXT = "(context)"  # The one position of the whole context among the names of features.

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
    shows = WEIGHTS

    def setup(self) -> None:
        self.project = dense(self.config, self.config.dimension)
        self.make_gates()

    def make_gates(self) -> None:
        """To be called by `setup`: the gates of `model.start_as_plain`."""
        config = self.config
        if config.start_as_plain:
            closed = nn.initializers.constant(CLOSED)
            self.gates = self.param("gates", closed, (config.layers, config.heads))

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Array]:
        token = self.project(context.vector)[:, None]
        return append(x, mask, token, jnp.ones(token.shape[:2], bool))

    def keys_values(self, layer: int, state: Array) -> ExtraKeys:
        if not self.config.start_as_plain:
            return ExtraKeys()
        gate = jnp.maximum(jnp.abs(self.gates[layer]), CLOSED)
        return ExtraKeys(bias=jnp.log(gate)[:, None, None] * state)

    @classmethod
    def keys(cls, features: tuple[Feature, ...], tokens: int, options: Any) -> tuple[str, ...]:
        return *(TOKENS for _ in range(tokens)), CONTEXT

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return sizes.context * sizes.config.dimension

    @classmethod
    def extra_positions(cls, sizes: Sizes) -> float:
        return 1.0


def append(x: Array, mask: Array, tokens: Array, shown: Array) -> tuple[Array, Array, Array]:
    """Adds K positions after the L of x.

    Args:
      x: `[B, L, D]`.
      mask: `bool [B, L]`.
      tokens: `[B, K, D]`.
      shown: `bool [B, K]`, which of them are there.

    Returns:
      x `[B, L + K, D]`, the mask, and the state: `float32 [L + K]`, 1 at the new positions.
    """
    new = jnp.arange(x.shape[1] + tokens.shape[1]) >= x.shape[1]
    x = jnp.concatenate([x, tokens], axis=1)
    mask = jnp.concatenate([mask, shown], axis=1)
    return x, mask, new.astype(jnp.float32)
