"""[GSU]: the global state is updated between blocks (section 3, equation 2)."""

from cbert.model.conditioning.global_state import GlobalState
from cbert.model.layers import FNN, norm


class GlobalStateUpdate(GlobalState):
    """[GS], and between blocks g = Norm(FNN(g)), each with weights of its own.

    The paper's text has no norm here, its count of parameters does. Its scale begins small, as
    the state of [GS] does: at 1 the state would be ten times larger from the second block on,
    and training ends far worse.
    """

    def setup(self) -> None:
        super().setup()
        hyper, updates = self.hyper, range(self.hyper.layers - 1)
        self.fnn = [FNN(hyper, 2 * hyper.dimension) for _ in updates]
        self.norm = [norm(hyper, begin=hyper.update_scale) for _ in updates]

    def update(self, layer, x, mask, g, noise):
        del x, mask, noise
        updated = self.fnn[layer](g)
        if self.hyper.update_residual:
            updated = updated + g
        return self.norm[layer](updated) if self.hyper.update_norm else updated
