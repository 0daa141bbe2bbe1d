"""Which items are hidden while training.

Legend: B examples, L positions, P hidden positions.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from cbert.schema import MASK_ITEM

Array = jax.Array

ONE, RATE = "one", "rate"
KINDS = (ONE, RATE)


@dataclasses.dataclass(frozen=True)
class Masking:
    """How items are hidden.

    Attributes:
      kind: `one`: exactly one real item an example, the paper's task; `rate`: a share of them.
      rate: That share, rounded to whole items, at least one.
      corrupt: BERT's 80/10/10: of the hidden items 10 % are shown as a random item and
        10 % as they are.
    """

    kind: str = ONE
    rate: float = 0.15
    corrupt: bool = False

    def count(self, real: Array) -> Array:
        """How many of an example's real items are hidden; for NumPy and JAX arrays alike."""
        if self.kind == ONE:
            return (real > 0).astype("int32")
        return (real > 0) * (real * self.rate + 0.5).astype("int32").clip(1)


def hide(
    key: Array, codes: Array, places: Array, batch_size: int, masking: Masking, vocabulary: int
) -> tuple[Array, Array, Array, Array]:
    """Hides items of a part of the global batch.

    Args:
      key: The step's key.
      codes: `int32 [B, L]` item codes.
      places: `int32 [B]`, where each example stands in the global batch; what is hidden
        depends on the place, not on the device that holds it.
      batch_size: Examples of the global batch.
      masking: How items are hidden.
      vocabulary: V, real items.

    Returns:
      Codes as the model sees them `[B, L]`, hidden positions `[B, P]`, their items `[B, P]`,
      and `float32 [B, P]` weights: 1, or 0 where there is nothing to hide.
    """
    length = codes.shape[1]
    order_key, corrupt_key, item_key = jax.random.split(key, 3)
    noise = jax.random.uniform(order_key, (batch_size, length))[places]
    noise = jnp.where(codes >= 0, noise, -1.0)
    most = int(masking.count(np.array([length]))[0])
    _, hidden = jax.lax.top_k(noise, most)
    count = masking.count((codes >= 0).sum(axis=1))
    asked = jnp.arange(most) < count[:, None]
    items = jnp.take_along_axis(codes, hidden, axis=1)
    shown = jnp.full_like(items, MASK_ITEM)
    if masking.corrupt:
        chance = jax.random.uniform(corrupt_key, (batch_size, most))[places]
        other = jax.random.randint(item_key, (batch_size, most), 0, vocabulary)[places]
        shown = jnp.where(chance < 0.8, shown, jnp.where(chance < 0.9, other, items))
    shown = jnp.where(asked, shown, items)
    seen = codes.at[jnp.arange(len(codes))[:, None], hidden].set(shown)
    return seen, hidden, jnp.maximum(items, 0), asked.astype(jnp.float32)


def expected_count(items: np.ndarray, masking: Masking) -> float:
    """Mean number of hidden items an example: what the loss is divided by, a constant."""
    return float(np.mean(masking.count((items >= 0).sum(axis=1))))
