"""What methods share whose blocks read the context right after their attention.

Legend: B examples, P query positions of the block, D model dimension.
"""

from cbert.model.conditioning.method import READ, Method
from cbert.model.layers import AddAndNorm, Array, Dropout


class ReadingMethod(Method):
    """In each block x = Norm(x + Dropout(y)), where y is what the block reads of the context.

    With `model.start_as_plain` it is x + Dropout(y): what makes y begins at zero, and no norm
    follows. A subclass calls `make_residuals` in its `setup`.
    """

    starts_as_plain = True

    def make_residuals(self, *, scale: bool = True, bias: bool = True) -> None:
        """Makes the layers of `add_read`; a norm may learn a scale and a bias."""
        layers = range(self.config.layers)
        if self.config.start_as_plain:
            self.dropout = [Dropout(self.config) for _ in layers]
        else:
            self.add_and_norm = [
                AddAndNorm(self.config, scale=scale, bias=bias) for _ in layers
            ]

    def add_read(self, layer: int, x: Array, y: Array) -> Array:
        """x `[B, P, D]` with y added, `[B, P, D]` or broadcastable to it."""
        self.sow("intermediates", READ, y)
        if self.config.start_as_plain:
            return x + self.dropout[layer](y)
        return self.add_and_norm[layer](x, y)
