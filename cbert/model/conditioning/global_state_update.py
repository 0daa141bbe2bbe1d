"""[GSU]: the global state is updated between blocks (section 3, equation 2).

Legend: B examples, D model dimension.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from cbert.config import field
from cbert.model.conditioning.global_state import GlobalState, GlobalStateConfig
from cbert.model.conditioning.method import Sizes
from cbert.model.layers import FNN, Array, norm

AFTER, BEFORE, NO_NORM = "after", "before", "none"


@dataclasses.dataclass(frozen=True)
class GlobalStateUpdateConfig(GlobalStateConfig):
    """The method [GSU]."""

    update_residual: bool = field(
        False, "whether an update is added to the state that it is made of"
    )
    update_norm: str = field(
        AFTER,
        "where an update has its norm: `after`, Norm(FNN(g)) or, with the residual, "
        "Norm(g + FNN(g)); `before`, FNN(Norm(g)) or g + FNN(Norm(g)); the paper's count "
        "says that there is one",
        choices=(AFTER, BEFORE, NO_NORM),
    )
    update_scale: float = field(
        0.0,
        "initial scale of that norm; 0 takes D^-0.5, with which embeddings begin, and 1, the "
        "usual value, trains far worse",
        at_least=0,
    )


class GlobalStateUpdate(GlobalState):
    """[GSU], and between blocks g = Norm(FNN(g)), each with weights of its own.

    The paper's text has no norm here, but its count of parameters does. Its scale begins small,
    as the state of [GS] does: at 1 the state would be ten times larger from the second block
    on, and training ends far worse.
    """

    Config = GlobalStateUpdateConfig

    def setup(self) -> None:
        super().setup()
        config, updates = self.config, range(self.config.layers - 1)
        scale = self.options.update_scale or config.dimension**-0.5
        self.fnn = [FNN(config, 2 * config.dimension) for _ in updates]
        self.norm = [norm(config, initial_scale=scale) for _ in updates]

    def update(self, layer: int, x: Array, mask: Array, state: Any) -> Any:
        return self.next_state(layer, state)

    def next_state(self, layer: int, state: Array, *others: Array) -> Array:
        """The state `[B, D]` after update `layer`; its FNN reads the others, `[B, D]`, too."""
        form = self.options.update_norm
        own = self.norm[layer](state) if form == BEFORE else state
        y = self.fnn[layer](jnp.concatenate([own, *others], axis=-1))
        if self.options.update_residual:
            y = state + y
        return self.norm[layer](y) if form == AFTER else y

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        updates = (sizes.config.layers - 1) * 4 * sizes.config.dimension**2
        return super().multiply_adds(sizes) + updates
