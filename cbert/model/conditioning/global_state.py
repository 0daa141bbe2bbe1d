"""[GS]: a global state that every block reads (section 3, Global State, equation 1).

Legend: B examples, D model dimension.
"""

import dataclasses
from typing import Any

from cbert.config import field
from cbert.model.conditioning.method import READ, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import FNN, AddAndNorm, Array, Dropout, dense


@dataclasses.dataclass(frozen=True)
class GlobalStateConfig:
    """The method [GS]."""

    state_norm: str = field(
        "plain",
        "after reading the state the norm learns nothing and the value projection has a bias, "
        "or (`scale`) the norm learns a scale and the projection has no bias",
        choices=("plain", "scale"),
    )


class GlobalState(Method):
    """g = FNN(c); in each block x = Norm(x + Dropout(V g)).

    Attention over a state of one position is its value projection, so there is no query and
    no key, and V g `[B, D]` is computed once an example.

    With `model.start_as_plain` it is x + Dropout(V g): V begins at zero, and no norm follows.
    """

    Config = GlobalStateConfig
    starts_as_plain = True
    zero_is_plain = ("value",)

    def setup(self) -> None:
        config, layers = self.config, range(self.config.layers)
        learned = self.options.state_norm == "scale"
        self.state = FNN(config, config.dimension)
        plain = config.start_as_plain
        self.value = [
            dense(config, config.dimension, bias=not learned, zero=plain) for _ in layers
        ]
        if plain:
            self.dropout = [Dropout(config) for _ in layers]
        else:
            self.add_and_norm = [AddAndNorm(config, scale=learned, bias=False) for _ in layers]

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        return x, mask, self.state(context.vector)

    def after_attention(self, layer: int, x: Array, mask: Array, state: Any) -> Array:
        y = self.value[layer](state)[:, None]
        self.sow("intermediates", READ, y)
        if self.config.start_as_plain:
            return x + self.dropout[layer](y)
        return self.add_and_norm[layer](x, y)

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        return sizes.context * size + (1 + sizes.config.layers) * size**2
