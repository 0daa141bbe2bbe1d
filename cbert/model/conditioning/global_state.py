"""[GS]: a global state that every block reads (section 3, Global State, equation 1).

Legend: B examples, D model dimension.
"""

import dataclasses
from typing import Any

from cbert.config import field
from cbert.model.conditioning.method import Sizes
from cbert.model.conditioning.reading import ReadingMethod
from cbert.model.context import Context
from cbert.model.layers import FNN, Array, dense


@dataclasses.dataclass(frozen=True)
class GlobalStateConfig:
    """The method [GS]."""

    state_norm: str = field(
        "plain",
        "after reading the state the norm learns nothing and the value projection has a bias, "
        "or (`scale`) the norm learns a scale and the projection has no bias",
        choices=("plain", "scale"),
    )


class GlobalState(ReadingMethod):
    """g = FNN(c); in each block x = Norm(x + Dropout(V g)).

    Attention over a state of one position is its value projection, so there is no query and
    no key, and V g `[B, D]` is computed once an example.

    With `model.start_as_plain` it is x + Dropout(V g): V begins at zero, and no norm follows.
    """

    Config = GlobalStateConfig
    zero_is_plain = ("value",)

    def setup(self) -> None:
        config, layers = self.config, range(self.config.layers)
        learned = self.options.state_norm == "scale"
        self.state = FNN(config, config.dimension)
        self.value = [
            dense(config, config.dimension, bias=not learned, zero=config.start_as_plain)
            for _ in layers
        ]
        self.make_residuals(scale=learned, bias=False)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        return x, mask, self.state(context.vector)

    def after_attention(self, layer: int, x: Array, mask: Array, state: Any) -> Array:
        return self.add_read(layer, x, self.value[layer](state)[:, None])

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        return sizes.context * size + (1 + sizes.config.layers) * size**2
