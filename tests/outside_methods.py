"""A conditioning method as somebody outside the package would write it.

Legend: B examples, L positions, D model dimension.
"""

import dataclasses

from cbert.config import field
from cbert.model.conditioning.method import Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, dense


@dataclasses.dataclass(frozen=True)
class ScaledInputConfig:
    """The method `scaled_input`."""

    bias: bool = field(True, "whether the scale has a bias beside what the context says")


class ScaledInput(Method):
    """x = (1 + W c) ⊙ x before the first block; W begins at zero."""

    Config = ScaledInputConfig

    def setup(self) -> None:
        self.scale = dense(
            self.config, self.config.dimension, bias=self.options.bias, zero=True
        )

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, None]:
        return x * (1 + self.scale(context.vector)[:, None]), mask, None

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return sizes.context * sizes.config.dimension


METHODS: dict[str, type[Method]] = {"scaled_input": ScaledInput}
