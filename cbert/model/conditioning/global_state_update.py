"""[GSU]: the global state is updated between blocks (section 3, equation 2)."""

import dataclasses
from typing import Any

from cbert.config import field
from cbert.model.conditioning.global_state import GlobalState, GlobalStateConfig
from cbert.model.conditioning.method import Sizes
from cbert.model.layers import FNN, Array, norm


@dataclasses.dataclass(frozen=True)
class GlobalStateUpdateConfig(GlobalStateConfig):
    """The method [GSU]."""

    update_residual: bool = field(
        False, "whether an update is Norm(g + FNN(g)) instead of Norm(FNN(g))"
    )
    update_norm: bool = field(
        True, "whether an update is normalised; the paper's count says yes"
    )
    update_scale: float = field(
        0.0,
        "initial scale of that norm; 0 takes D^-0.5, with which embeddings begin, and 1, the "
        "usual value, trains far worse",
        at_least=0,
    )


class GlobalStateUpdate(GlobalState):
    """[GS], and between blocks g = Norm(FNN(g)), each with weights of its own.

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
        del x, mask
        updated = self.fnn[layer](state)
        if self.options.update_residual:
            updated = updated + state
        return self.norm[layer](updated) if self.options.update_norm else updated

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        updates = (sizes.config.layers - 1) * 4 * sizes.config.dimension**2
        return super().multiply_adds(sizes) + updates
