"""Injector: an adapter in every block, whose weights are made by the context."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field
from cbert.model.conditioning.method import FEED_FORWARD, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import ACTIVATIONS, FNN, Array, dense, dense_class


@dataclasses.dataclass(frozen=True)
class InjectorConfig:
    """The method Injector."""

    bottleneck: int = field(32, "hidden units of each adapter", at_least=1)
    rank: int = field(16, "rank of the weights that the context makes", at_least=1)


class Injector(Method):
    """y = y + W_up f(W_down y + b_down) + b_up after each FNN, with weights of the context.

    Both matrices are sums of `rank` matrices of rank one, which the context weighs: W = S
    diag(1 + a) T, where S and T are learned and [a_down; a_up; b_down] = W_c FNN(c) + b_c; b_up
    is learned. So a position is multiplied by four thin matrices, and no matrix is made for an
    example. The block's own add and norm follows, and f is its activation.

    It is in the spirit of injectors (Amplayo, Yoo and Lee, 2022, "Attribute Injection for
    Pretrained Language Models"), adapters with low-rank weights of an attribute, but not
    exactly theirs, which multiply hypercomplex numbers.

    With `model.start_as_plain` the last factor of W_up begins at zero.
    """

    Config = InjectorConfig
    starts_as_plain = True
    zero_is_plain = ("out",)

    def setup(self) -> None:
        config, own, layers = self.config, self.options, range(self.config.layers)
        self.state = FNN(config, config.dimension)
        self.weights = [self._dense(2 * own.rank + own.bottleneck, True) for _ in layers]
        self.down = [self._dense(own.rank) for _ in layers]
        self.hidden = [self._dense(own.bottleneck) for _ in layers]
        self.up = [self._dense(own.rank) for _ in layers]
        plain = config.start_as_plain
        self.out = [dense(config, config.dimension, zero=plain) for _ in layers]

    def _dense(self, width: int, bias: bool = False) -> nn.Dense:
        """Keeps the size of its input at any `model.initializer`: several stand in a row."""
        return dense_class(self.config)(width, bias, dtype=self.config.dtype)

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
        if sublayer == FEED_FORWARD:
            y = y + self._adapted(layer, y, state)
        return add_and_norm(x, y)

    def _adapted(self, layer: int, y: Array, state: Array) -> Array:
        rank = self.options.rank
        weights = self.weights[layer](state)[:, None]
        down, up, bias = jnp.split(weights, [rank, 2 * rank], axis=-1)
        y = self.hidden[layer]((1 + down) * self.down[layer](y)) + bias
        y = ACTIVATIONS[self.config.activation](y)
        return self.out[layer]((1 + up) * self.up[layer](y))

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size, layers = sizes.config.dimension, sizes.config.layers
        rank, bottleneck = sizes.options.rank, sizes.options.bottleneck
        made = sizes.context * size + size**2 + layers * size * (2 * rank + bottleneck)
        return made + sizes.rows * 2 * rank * (size + bottleneck)
