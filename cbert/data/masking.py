"""Which items of a batch are masked.

Legend: B examples, L positions, P masked positions.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cbert.schema import MASK_ITEM

Array = jax.Array

ONE, RATE = "one", "rate"
KINDS = (ONE, RATE)


@dataclasses.dataclass(frozen=True)
class Masking:
    """How items are masked.

    Attributes:
      kind: `one`: exactly one real item an example, the paper's task; `rate`: a fraction.
      rate: That fraction, rounded to whole items, at least one.
      corrupt: BERT's 80/10/10: of the masked items 10 % are shown as a random item and 10 % as
        they are.
    """

    kind: str = ONE
    rate: float = 0.15
    corrupt: bool = False

    def count(self, real: Array | np.ndarray) -> Any:
        """How many of an example's real items are masked; for NumPy and JAX arrays alike."""
        if self.kind == ONE:
            return (real > 0).astype("int32")
        return (real > 0) * (real * self.rate + 0.5).astype("int32").clip(1)


def mask(
    key: Array,
    codes: Array,
    indices: Array,
    batch_size: int,
    masking: Masking,
    vocabulary: int,
) -> tuple[Array, Array, Array, Array]:
    """Masks items of a part of the global batch.

    Args:
      key: The step's key.
      codes: `int32 [B, L]` item codes.
      indices: `int32 [B]`, the index of each example in the global batch; what is masked
        depends on it, not on the device that holds the example.
      batch_size: Examples of the global batch.
      masking: How items are masked.
      vocabulary: V, real items.

    Returns:
      Codes as the model sees them `[B, L]`, masked positions `[B, P]`, their items `[B, P]`,
      and `float32 [B, P]` weights: 1, or 0 where there is nothing to mask.
    """
    length = codes.shape[1]
    order_key, corrupt_key, item_key = jax.random.split(key, 3)
    order = jax.random.uniform(order_key, (batch_size, length))[indices]
    order = jnp.where(codes >= 0, order, -1.0)
    most = int(masking.count(np.array([length]))[0])
    _, positions = jax.lax.top_k(order, most)
    count = masking.count((codes >= 0).sum(axis=1))
    is_masked = jnp.arange(most) < count[:, None]
    items = jnp.take_along_axis(codes, positions, axis=1)
    shown = jnp.full_like(items, MASK_ITEM)
    if masking.corrupt:
        chance = jax.random.uniform(corrupt_key, (batch_size, most))[indices]
        other = jax.random.randint(item_key, (batch_size, most), 0, vocabulary)[indices]
        shown = jnp.where(chance < 0.8, shown, jnp.where(chance < 0.9, other, items))
    shown = jnp.where(is_masked, shown, items)
    seen = codes.at[jnp.arange(len(codes))[:, None], positions].set(shown)
    return seen, positions, jnp.maximum(items, 0), is_masked.astype(jnp.float32)


def expected_count(items: np.ndarray, masking: Masking) -> float:
    """Mean number of masked items an example, a constant that the loss is divided by."""
    return float(np.mean(masking.count((items >= 0).sum(axis=1))))
