"""Gated late fusion: the context decides what passes of the last block's output."""

import dataclasses
from typing import Any

from flax import linen as nn

from cbert.config import field
from cbert.model.conditioning.method import GATES, Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import FNN, Array, dense


@dataclasses.dataclass(frozen=True)
class LateGateConfig:
    """The method `late_gate`."""

    form: str = field(
        "mix",
        "what the gate closes is replaced by the context, g h + (1 - g) W c̃, or (`pure`) by "
        "nothing, g h",
        choices=("mix", "pure"),
    )


class LateGate(Method):
    """g = σ(W_h h + W_s c̃ + b) and h = g ⊙ h + (1 - g) ⊙ W_o c̃ after the last block.

    Here c̃ = FNN(c). In the spirit of GBCN (Li et al. 2020), which gates BERT's output by an
    embedding of the context; its `pure` gate is h = g ⊙ h. The blocks never see the context,
    but unlike in `late_concat` the token's own h decides how much of the context it takes.

    With `model.start_as_plain` it is h + (1 - g) ⊙ (W_o c̃ - a ⊙ h), where W_o and a learned
    vector a begin at zero; with a = 1 it is the same again.
    """

    Config = LateGateConfig
    starts_as_plain = True
    zero_is_plain = ("out", "removed")
    shows = GATES

    def setup(self) -> None:
        config = self.config
        self.state = FNN(config, config.dimension)
        self.gate_hidden = dense(config, config.dimension)
        self.gate_context = dense(config, config.dimension, bias=False)
        if self.options.form == "mix":
            self.out = dense(config, config.dimension, zero=config.start_as_plain)
        if config.start_as_plain:
            zeros = nn.initializers.zeros
            self.removed = self.param("removed", zeros, (config.dimension,))

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        return x, mask, self.state(context.vector)

    def finish(self, x: Array, state: Any) -> Array:
        closed = nn.sigmoid(-self.gate_hidden(x) - self.gate_context(state)[:, None])
        filling = self.out(state)[:, None] if self.options.form == "mix" else 0
        removed = self.removed.astype(x.dtype) if self.config.start_as_plain else 1
        # What passes of x, which is g in the form that does not start as the plain model.
        self.sow("intermediates", GATES, {"gate": 1 - closed * removed})
        return x + closed * (filling - removed * x)

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size = sizes.config.dimension
        once = 3 if sizes.options.form == "mix" else 2
        return sizes.context * size + (once + sizes.queries) * size**2
