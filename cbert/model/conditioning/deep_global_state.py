"""[GS] behind a deep network: [GSU]'s updates, all applied before the first block."""

import dataclasses
from typing import Any

from cbert.model.conditioning.global_state_update import (
    GlobalStateUpdate,
    GlobalStateUpdateConfig,
)
from cbert.model.context import Context
from cbert.model.layers import Array


@dataclasses.dataclass(frozen=True)
class DeepGlobalStateConfig(GlobalStateUpdateConfig):
    """The method [GS] with a state as deep as that of [GSU]."""


class DeepGlobalState(GlobalStateUpdate):
    """g = U(...U(FNN(c))...), once; every block reads this last state.

    U are the n - 1 updates of [GSU] in n blocks, so that parameters and cost are those of
    [GSU], and every block reads what only the last one reads there. It is a control for the
    paper's claim: a gain of [GSU] that this method has, too, comes from a deeper network over
    the context, and not from a state that changes between blocks.
    """

    Config = DeepGlobalStateConfig

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        x, mask, state = super().begin(x, mask, context)
        for layer in range(self.config.layers - 1):
            state = self.next_state(layer, state)
        return x, mask, state

    def update(self, layer: int, x: Array, mask: Array, state: Any) -> Any:
        return state
