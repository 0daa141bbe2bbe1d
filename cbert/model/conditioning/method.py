"""The hooks through which a context may enter the encoder.

Legend: B examples, L positions, P query positions of the block, D model dimension, H heads, K
extra keys. The state is whatever a method wants to carry from block to block, None by default.

A method drops entries through `layers.Dropout`, which is active where the caller of the model
gave a dropout key.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from flax import linen as nn
from flax import struct

from cbert.model.config import ModelConfig
from cbert.model.context import Context
from cbert.model.layers import Array
from cbert.schema import Feature

ATTENTION, FEED_FORWARD = "attention", "feed_forward"
# What a method may show of how it reads the context: the weights of attention, or gates, a dict
# of name to `[B, P, ...]` that it sows under this name into the collection `intermediates`.
GATES = "gates_of_context"
# What each block adds to its positions from the context, `[B, P, D]`, or `[B, 1, D]` for all of
# them: sown, block after block, by methods that read the context after attention.
READ = "read_of_context"
TOKENS = "(tokens)"  # The tokens among the names of features.


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of one example, on which the cost of a method depends.

    Attributes:
      config: The encoder's sizes.
      context: C, the width of the context vector.
      features: F, the number of context features.
      length: L, tokens of the example.
      queries: Positions that the last block computes.
      histories: The width and the most items of each context feature that is a history.
      options: The method's own section, as in `Method`.
    """

    config: ModelConfig
    context: int
    features: int
    length: float
    queries: float
    histories: tuple[tuple[int, int], ...] = ()
    options: Any = None

    @property
    def rows(self) -> float:
        """Positions that all blocks compute: the last one queries, the others all tokens."""
        return (self.config.layers - 1) * self.length + self.queries


@struct.dataclass
class ExtraKeys:
    """The keys that a block's attention reads beside the positions.

    Attributes:
      x: `[B, K, D]`, more keys and values, seen by every query; None for no more.
      mask: `bool [B, K]`, which of them are there; None for all.
      bias: `[H, L, L + K]`, or `[B, H, L, L + K]` for each example, or broadcastable to it,
        added to the logits; None for none. The last block takes the rows of its queries.
      visible: `bool [L, L + K]`, which keys each position may read; None for all. The last
        block takes the rows of its queries.
    """

    x: Array | None = None
    mask: Array | None = None
    bias: Array | None = None
    visible: Array | None = None


class Method(nn.Module):
    """A conditioning method: every hook is the identity unless a subclass overrides it.

    Attributes:
      config: The encoder's sizes and open choices.
      options: The method's own, an instance of its `Config`; None where it has none.
    """

    config: ModelConfig
    options: Any = None

    # The section `model.<method>` of a config, a frozen dataclass; None for no section.
    Config: ClassVar[type | None] = None
    # Whether the method has a form for `model.start_as_plain`.
    starts_as_plain = False
    # The parameters of that form that keep the context out exactly while they are zero. It is
    # empty if no values of the parameters do.
    zero_is_plain: tuple[str, ...] = ()
    # What can be shown of how it reads the context: `WEIGHTS`, `GATES`, or nothing.
    shows = ""

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        """Runs before the first block: x `[B, L, D]`, mask `bool [B, L]`, and the context.

        It returns x, the mask and the state. Positions may be added after the tokens.
        """
        return x, mask, None

    def keys_values(self, layer: int, state: Any) -> ExtraKeys:
        """The keys that the attention of block `layer` reads beside the positions."""
        return ExtraKeys()

    def sublayer_input(self, layer: int, sublayer: str, x: Array, state: Any) -> Array:
        """The input of a sub-layer: x itself, or its norm in a pre-norm block.

        It is `[B, L, D]`, before the feed-forward sub-layer `[B, P, D]`.
        """
        return x

    def residual(
        self,
        layer: int,
        sublayer: str,
        x: Array,
        y: Array,
        state: Any,
        add_and_norm: Callable[[Array, Array], Array],
    ) -> Array:
        """Adds a sub-layer's output y to x, `[B, P, D]` each; BERT's is Norm(x + Dropout(y)).

        `add_and_norm` is the block's own; one that is never called has no parameters.
        """
        return add_and_norm(x, y)

    def after_attention(self, layer: int, x: Array, mask: Array, state: Any) -> Array:
        """Runs in block `layer` between attention and FNN: x `[B, P, D]` reads the state.

        In the last block x and mask are those of the query positions alone.
        """
        return x

    def update(self, layer: int, x: Array, mask: Array, state: Any) -> Any:
        """Runs between blocks, after block `layer`: returns the state of the next block."""
        return state

    def finish(self, x: Array, state: Any) -> Array:
        """Runs after the last block, `[B, P, D]`."""
        return x

    @classmethod
    def reads_context(cls, options: Any) -> bool:
        """Whether the method with these options conditions on a context."""
        return True

    @classmethod
    def keys(cls, features: tuple[Feature, ...], tokens: int, options: Any) -> tuple[str, ...]:
        """What each key stands for that positions read, for a method that shows its weights.

        Where `TOKENS` are among the keys, the attention is that of the blocks; else it is that
        of the method's own modules `attention_0`, `attention_1`, ... A name may repeat.
        """
        return ()

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        """Multiplications with additions that the method adds to one example's forward pass."""
        return 0.0

    @classmethod
    def extra_positions(cls, sizes: Sizes) -> float:
        """The number of positions that `begin` adds."""
        return 0.0
