"""A global state that reads the sequence back, as in the full block of graph networks.

Legend: B examples, L positions, D model dimension.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field
from cbert.model.conditioning.global_state_update import (
    GlobalStateUpdate,
    GlobalStateUpdateConfig,
)
from cbert.model.conditioning.method import Sizes
from cbert.model.config import MEAN, SUM
from cbert.model.context import Context, mean_pool
from cbert.model.layers import Array, dense, embedding_init

BY_ATTENTION = "attention"


@dataclasses.dataclass(frozen=True)
class BidirectionalGlobalStateConfig(GlobalStateUpdateConfig):
    """The method [GSU] whose updates also read the sequence: FNN(g) becomes FNN([g; r])."""

    update_residual: bool = field(
        True, "whether an update is added to the state that it is made of"
    )
    pool: str = field(
        MEAN,
        "how the n positions of the sequence become one vector r: their mean, their `sum` over "
        "the square root of n, or `attention` with one query that is made of the state",
        choices=(MEAN, SUM, BY_ATTENTION),
    )
    context: bool = field(
        True,
        "whether the state begins as a function of the context; if not, it begins as a learned "
        "vector, and the method also runs on data without a context",
    )


class BidirectionalGlobalState(GlobalStateUpdate):
    """[GSU], but after each block r = pool(X) / sqrt(D) and g = Norm(g + FNN([g; r])).

    This is the full block of graph networks (Battaglia et al. 2018, "Relational inductive
    biases, deep learning, and graph networks", section 4.2), where a global attribute reads
    the nodes and they read it. With weights of zero for r it is [GSU] with its residual.
    Without a context (`context = false`) the state is a register, as the position of [CLS] is
    in BERT; this measures what the flow from items to state and back gains alone.

    r sees no padding, and nothing of a masked item but the embedding of the mask. The division
    makes it begin as large as g: a block ends in a norm of scale 1, and the state begins as
    large as an embedding. Nothing is left to read an update after the last block, so there is
    none. The query of `attention` is W g, and the keys and values are X itself.
    """

    Config = BidirectionalGlobalStateConfig

    @classmethod
    def reads_context(cls, options: Any) -> bool:
        return options.context

    def setup(self) -> None:
        super().setup()
        config, updates = self.config, range(self.config.layers - 1)
        if not self.options.context:
            init = embedding_init(config, config.dimension)
            self.start = self.param("start", init, (1, config.dimension))
        if self.options.pool == BY_ATTENTION:
            self.query = [dense(config, config.dimension) for _ in updates]

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Any]:
        if self.options.context:
            return super().begin(x, mask, context)
        start = self.start.astype(self.config.dtype)
        return x, mask, jnp.broadcast_to(start, (x.shape[0], start.shape[1]))

    def update(self, layer: int, x: Array, mask: Array, state: Any) -> Any:
        read = self._pool(layer, x, mask, state) * x.shape[-1] ** -0.5
        return self.next_state(layer, state, read.astype(state.dtype))

    def _pool(self, layer: int, x: Array, mask: Array, state: Array) -> Array:
        """The positions x `[B, L, D]` that the mask `[B, L]` shows as one vector `[B, D]`."""
        if self.options.pool == BY_ATTENTION:
            logits = jnp.einsum("bd,bld->bl", self.query[layer](state), x)
            logits = logits.astype(jnp.float32) * x.shape[-1] ** -0.5
            weights = nn.softmax(jnp.where(mask, logits, -1e9)).astype(x.dtype)
            return jnp.einsum("bl,bld->bd", weights, x)
        mean = mean_pool(x, mask)
        if self.options.pool == MEAN:
            return mean
        return mean * jnp.sqrt(mask.sum(axis=1, keepdims=True))

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        size, updates = sizes.config.dimension, sizes.config.layers - 1
        total = super().multiply_adds(sizes) + updates * 2 * size**2
        if not sizes.options.context:
            total -= (sizes.context + size) * size
        if sizes.options.pool == BY_ATTENTION:
            total += updates * (size + 2 * sizes.length) * size
        return total
