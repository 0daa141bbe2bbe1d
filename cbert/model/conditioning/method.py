"""The four doors through which a context may enter the encoder.

Legend: B examples, L positions, D model dimension, C width of the context vector.
The state g is whatever a method wants to carry from block to block, None by default.
The noise is the step's `uint32 []` for dropout, None when dropout is off.
"""

from typing import Any

from flax import linen as nn

from cbert.model.layers import Array, Hyperparameters


class Method(nn.Module):
    """A method leaves each door as it is, the identity, or opens it."""

    hyper: Hyperparameters

    def enter(
        self, x: Array, mask: Array, context: Any, noise: Array | None
    ) -> tuple[Array, Array, Any]:
        """Before the first block: x `[B, L, D]`, mask `bool [B, L]` and the `Context`.

        Positions may be added after the items. In the last block x and mask are those of the
        hidden positions alone, `[B, P, D]` and `[B, P]`.
        """
        del context, noise  # Only methods that condition read them.
        return x, mask, None

    def read(self, layer: int, x: Array, mask: Array, g: Any, noise: Array | None) -> Array:
        """In block `layer`, between attention and FNN: x takes what it needs from the state."""
        del layer, mask, g, noise
        return x

    def update(self, layer: int, x: Array, mask: Array, g: Any, noise: Array | None) -> Any:
        """After block `layer`, between blocks only: the state of the next block."""
        del layer, x, mask, noise
        return g

    def leave(self, x: Array, g: Any) -> Array:
        """After the last block, `[B, P, D]`."""
        del g
        return x
