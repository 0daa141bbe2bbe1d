"""FiLM: the context scales and shifts what a sub-layer of every block gives."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from cbert.config import field
from cbert.model.conditioning.method import ATTENTION, FEED_FORWARD, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import FNN, Array, Dropout, dense, norm


@dataclasses.dataclass(frozen=True)
class FilmConfig:
    """The method FiLM."""

    after: str = field(
        FEED_FORWARD,
        "the sub-layer whose normalised output is scaled and shifted",
        choices=(ATTENTION, FEED_FORWARD),
    )
    shift: bool = field(True, "whether the context shifts, too, or only scales")
    norm: bool = field(
        False,
        "whether a norm that learns nothing follows, as in [GS]; with `model.start_as_plain` "
        "none does",
    )


class Film(Method):
    """In each block x = gamma x + beta, where [gamma - 1; beta] = Dropout(W FNN(c) + b).

    This is feature-wise linear modulation (Perez et al., 2018, "FiLM: Visual Reasoning with a
    General Conditioning Layer"), there after the norms of a convolutional network, here after
    those of a transformer. The state FNN(c) is that of [GS], and each block has its own W and
    b. With gamma = 1, after attention and with `norm`, it is [GS], so that a comparison of the
    two shows what scaling adds to shifting.

    With `model.start_as_plain` W begins at zero.
    """

    Config = FilmConfig
    starts_as_plain = True
    zero_is_plain = ("modulation",)

    def setup(self) -> None:
        config, layers = self.config, range(self.config.layers)
        size, plain = _parts(self.options) * config.dimension, config.start_as_plain
        self.state = FNN(config, config.dimension)
        self.modulation = [dense(config, size, zero=plain) for _ in layers]
        self.dropout = [Dropout(config) for _ in layers]
        self.norm = norm(config, scale=False, bias=False)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        return x, mask, self.state(context.vector)

    def residual(
        self,
        layer: int,
        sublayer: str,
        x: Array,
        y: Array,
        state: Any,
        add_and_norm: Callable[[Array, Array], Array],
    ) -> Array:
        x = add_and_norm(x, y)
        if sublayer != self.options.after:
            return x
        modulation = self.dropout[layer](self.modulation[layer](state))[:, None]
        scale, *shift = jnp.split(modulation, _parts(self.options), axis=-1)
        x = sum(shift, (1 + scale) * x)
        return self.norm(x) if self.options.norm and not self.config.start_as_plain else x

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size, maps = sizes.config.dimension, sizes.config.layers * _parts(sizes.options)
        return sizes.context * size + (1 + maps) * size**2


def _parts(options: FilmConfig) -> int:
    """How many vectors of width D the context gives to each block."""
    return 2 if options.shift else 1
