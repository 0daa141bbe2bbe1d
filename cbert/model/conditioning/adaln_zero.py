"""adaLN-Zero: pre-norm blocks whose norms and gates are made by the context.

Legend: B examples, D model dimension.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field
from cbert.model.conditioning.method import ATTENTION, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import FNN, Array, Dropout, dense, norm

PARTS, FINAL_PARTS = 6, 2  # Vectors that the context gives to a block, and to the last norm.


@dataclasses.dataclass(frozen=True)
class AdaptiveNormConfig:
    """The method adaLN-Zero."""

    rank: int = field(
        0,
        "rank of each block's map from the state to its scales, shifts and gates, which has "
        "fewer parameters then; 0 for a full matrix",
        at_least=0,
    )


class AdaptiveNorm(Method):
    """x = x + g Dropout(F((1 + s) Norm(x) + b)) for each sub-layer F of a pre-norm block.

    The method is adaLN-Zero of DiT (Peebles and Xie, 2023). Each block makes its six vectors,
    [s1; b1; g1; s2; b2; g2] = W SiLU(FNN(c)), W begins at zero, and the norms learn nothing.
    (1 + s) Norm(x) + b follows the last block. Every block is the identity at the start, so the
    blocks are others than those of [None]. Dropout is this model's, for DiT has none.

    With `model.start_as_plain` blocks stay post-norm, with the norms of the plain model:
    Norm(x + Dropout((1 + g) F((1 + s) x + b))), and (1 + s) x + b follows the last block. At
    the start that is the plain model exactly.
    """

    Config = AdaptiveNormConfig
    starts_as_plain = True
    zero_is_plain = ("modulation",)

    def setup(self) -> None:
        config, rank = self.config, self.options.rank
        widths = [PARTS * config.dimension] * config.layers + [FINAL_PARTS * config.dimension]
        self.state = FNN(config, config.dimension)
        if rank:
            self.reduced = [dense(config, rank, bias=False) for _ in widths]
        self.modulation = [dense(config, width, zero=True) for width in widths]
        self.dropout = [Dropout(config) for _ in range(2 * config.layers)]
        self.norm = norm(config, scale=False, bias=False)

    def begin(
        self, x: Array, mask: Array, context: Context
    ) -> tuple[Array, Array, list[list[Array]]]:
        """The state is each block's vectors and the last norm's, `[B, 1, D]` each."""
        vector = nn.silu(self.state(context.vector))[:, None]
        state = []
        for index, modulation in enumerate(self.modulation):
            reduced = self.reduced[index](vector) if self.options.rank else vector
            made = modulation(reduced)
            state.append(jnp.split(made, made.shape[-1] // x.shape[-1], axis=-1))
        return x, mask, state

    def sublayer_input(self, layer: int, sublayer: str, x: Array, state: Any) -> Array:
        scale, shift, _ = _own(sublayer, state[layer])
        return self._modulated(x, scale, shift)

    def residual(
        self,
        layer: int,
        sublayer: str,
        x: Array,
        y: Array,
        state: Any,
        add_and_norm: Callable[[Array, Array], Array],
    ) -> Array:
        *_, gate = _own(sublayer, state[layer])
        if self.config.start_as_plain:
            return add_and_norm(x, (1 + gate) * y)
        dropout = self.dropout[2 * layer + (sublayer != ATTENTION)]
        return x + gate * dropout(y)

    def finish(self, x: Array, state: Any) -> Array:
        return self._modulated(x, *state[-1])

    def _modulated(self, x: Array, scale: Array, shift: Array) -> Array:
        x = x if self.config.start_as_plain else self.norm(x)
        return (1 + scale) * x + shift

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size, rank, layers = sizes.config.dimension, sizes.options.rank, sizes.config.layers
        parts = PARTS * layers + FINAL_PARTS
        maps = parts * size**2
        if rank:
            maps = (layers + 1) * size * rank + parts * rank * size
        return sizes.context * size + size**2 + maps


def _own(sublayer: str, vectors: list[Array]) -> list[Array]:
    """The scale, shift and gate of a sub-layer, from those of its block."""
    return vectors[:3] if sublayer == ATTENTION else vectors[3:]
