"""[GS]: a global state that every block reads (section 3, Global State, equation 1)."""

import dataclasses
from typing import Any

from cbert.config import field
from cbert.model.conditioning.method import Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import FNN, AddAndNorm, Array, dense


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
    """

    Config = GlobalStateConfig

    def setup(self) -> None:
        config, layers = self.config, range(self.config.layers)
        learned = self.options.state_norm == "scale"
        self.state = FNN(config, config.dimension)
        self.value = [dense(config, config.dimension, bias=not learned) for _ in layers]
        self.add_and_norm = [AddAndNorm(config, scale=learned, bias=False) for _ in layers]

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        return x, mask, self.state(context.vector)

    def after_attention(self, layer: int, x: Array, mask: Array, state: Any) -> Array:
        del mask
        return self.add_and_norm[layer](x, self.value[layer](state)[:, None])

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        return sizes.context * size + (1 + sizes.config.layers) * size**2
