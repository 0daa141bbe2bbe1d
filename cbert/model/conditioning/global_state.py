"""[GS]: a global state that every block reads (section 3, Global State, equation 1)."""

from cbert.model.conditioning.method import Method
from cbert.model.layers import FNN, AddAndNorm, dense


class GlobalState(Method):
    """g = FNN(c); in each block x = Norm(x + Dropout(V g)).

    Attention over a state of one position is its value projection, so there is no query and
    no key, and V g `[B, D]` is computed once an example.
    """

    def setup(self) -> None:
        hyper, layers = self.hyper, range(self.hyper.layers)
        learned = hyper.state_norm == "scale"
        self.state = FNN(hyper, hyper.dimension)
        self.value = [dense(hyper, hyper.dimension, bias=not learned) for _ in layers]
        self.add_and_norm = [AddAndNorm(hyper, scale=learned, bias=False) for _ in layers]

    def enter(self, x, mask, context, noise):
        del noise
        return x, mask, self.state(context.vector)

    def read(self, layer, x, mask, g, noise):
        del mask
        return self.add_and_norm[layer](x, self.value[layer](g)[:, None], noise)
