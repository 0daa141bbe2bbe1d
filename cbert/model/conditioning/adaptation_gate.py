"""MAG: the context shifts each position by a gated vector of limited length.

Legend: B examples, L positions.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field
from cbert.model.conditioning.method import GATES, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, Dropout, dense, dense_class, kernel_init

EARLY, LATE = "early", "late"
EPSILON = 1e-6  # Keeps norms, and their gradients, from a division by zero.


@dataclasses.dataclass(frozen=True)
class AdaptationGateConfig:
    """The method MAG."""

    where: str = field(
        EARLY,
        "`early` shifts the embeddings before the first block, `late` the output of the "
        "last block",
        choices=(EARLY, LATE),
    )
    beta: float = field(
        1.0, "the longest shift as a fraction of the length of what is shifted", above=0
    )


class AdaptationGate(Method):
    """x = x + Dropout(a H), where H = g (W c) + b and a = min(beta |x| / |H|, 1).

    The gate g = ReLU(W_g [x; c] + b_g) belongs to a position. This is the multimodal adaptation
    gate (Rahman et al., 2020, "Integrating Multimodal Information in Large Pretrained
    Transformers"), which ends in a norm and dropout of the sum. Here dropout is of the shift
    alone and no norm follows, so that with a closed gate nothing is left but the plain model.
    b_g begins at 1, so that the shift begins as large as an embedding.

    With `model.start_as_plain` W begins at zero, as b always does.
    """

    Config = AdaptationGateConfig
    starts_as_plain = True
    zero_is_plain = ("value", "bias")
    shows = GATES

    def setup(self) -> None:
        config, size = self.config, self.config.dimension
        self.gate_x = dense(config, size, bias=False)
        ones = nn.initializers.ones
        self.gate_context = dense_class(config)(
            size, dtype=config.dtype, kernel_init=kernel_init(config), bias_init=ones
        )
        self.value = dense(config, size, bias=False, zero=config.start_as_plain)
        self.bias = self.param("bias", nn.initializers.zeros, (size,))
        self.dropout = Dropout(config)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        if self.options.where == LATE:
            return x, mask, context.vector
        return self._shifted(x, context.vector), mask, None

    def finish(self, x: Array, state: Any) -> Array:
        return self._shifted(x, state) if self.options.where == LATE else x

    def _shifted(self, x: Array, vector: Array) -> Array:
        c = vector[:, None]
        gate = nn.relu(self.gate_x(x) + self.gate_context(c))
        y = gate * self.value(c) + self.bias.astype(x.dtype)
        scale = jnp.minimum(self.options.beta * _length(x) / _length(y), 1)
        self.sow("intermediates", GATES, {"gate": gate, "alpha": scale})
        return x + self.dropout(scale.astype(x.dtype) * y)

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        rows = sizes.queries if sizes.options.where == LATE else sizes.length
        return 2 * sizes.context * size + rows * size**2


def _length(x: Array) -> Array:
    """The Euclidean norm of each vector, `float32 [B, L, 1]`, a little above zero."""
    squares = jnp.square(x.astype(jnp.float32)).sum(axis=-1, keepdims=True)
    return jnp.sqrt(squares + EPSILON**2)
