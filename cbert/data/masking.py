"""Masking of the items of a batch.

Legend: B examples of a batch, M of a split, L positions, P masked positions, V real items.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cbert.schema import MASK_ITEM

Array = jax.Array

ONE, RATE = "one", "rate"
MASKINGS = (ONE, RATE)


@dataclasses.dataclass(frozen=True)
class Masking:
    """The settings of masking.

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
        """The number of masked items for a number of real items, of NumPy or JAX."""
        if self.kind == ONE:
            return (real > 0).astype("int32")
        # NumPy would compute in float64, and round some lengths the other way.
        masked = real.astype("float32") * np.float32(self.rate) + np.float32(0.5)
        return (real > 0) * masked.astype("int32").clip(1)


def mask(
    key: Array,
    codes: Array,
    indices: Array,
    batch_size: int,
    masking: Masking,
    vocabulary: int,
    eligible: Array | None = None,
    mask_code: int = MASK_ITEM,
    continues: Array | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Masks items of a part of the global batch.

    Args:
      key: The step's key.
      codes: `int32 [B, L]` item codes.
      indices: `int32 [B]`, the index of each example in the global batch; what is masked
        depends on it, not on the device that holds the example.
      batch_size: Examples of the global batch.
      masking: The settings.
      vocabulary: V, real items.
      eligible: `bool [B, L]`, the positions that may be masked; None for those of real items.
      mask_code: The code that replaces a masked item.
      continues: `bool [B, L]`, whether a position continues the word before it; then words are
        masked whole, see `whole_words`. None masks each position for itself.

    Returns:
      Codes as the model sees them `[B, L]`, masked positions `[B, P]`, their items `[B, P]`,
      and `float32 [B, P]` weights: 1, or 0 where there is nothing to mask.
    """
    length = codes.shape[1]
    order_key, corrupt_key, item_key = jax.random.split(key, 3)
    order = jax.random.uniform(order_key, (batch_size, length))[indices]
    eligible = codes >= 0 if eligible is None else eligible
    most = int(masking.count(np.array([length]))[0])
    count = masking.count(eligible.sum(axis=1))
    if continues is not None:
        eligible = whole_words(order, eligible, continues, count)
        count = eligible.sum(axis=1)
    order = jnp.where(eligible, order, -1.0)
    _, positions = jax.lax.top_k(order, most)
    is_masked = jnp.arange(most) < count[:, None]
    items = jnp.take_along_axis(codes, positions, axis=1)
    shown = jnp.full_like(items, mask_code)
    if masking.corrupt:
        chance = jax.random.uniform(corrupt_key, (batch_size, most))[indices]
        other = jax.random.randint(item_key, (batch_size, most), 0, vocabulary)[indices]
        shown = jnp.where(chance < 0.8, shown, jnp.where(chance < 0.9, other, items))
    shown = jnp.where(is_masked, shown, items)
    rows = jnp.arange(len(codes))[:, None]
    seen = codes.at[rows, positions].set(shown, unique_indices=True)
    return seen, positions, jnp.maximum(items, 0), is_masked.astype(jnp.float32)


def whole_words(order: Array, eligible: Array, continues: Array, count: Array) -> Array:
    """Words in random order, each one if all its pieces still fit into the count, as in BERT.

    Args:
      order: `float32 [B, L]`, random numbers.
      eligible: `bool [B, L]`.
      continues: `bool [B, L]`, see `mask`.
      count: `int32 [B]`, the most positions to mask.

    Returns:
      `bool [B, L]`, the chosen positions.
    """
    batch, length = order.shape
    index = jnp.arange(length)
    first = jax.lax.cummax(jnp.where(continues, 0, index), axis=1)
    rows = jnp.arange(batch)[:, None]
    sizes = jnp.zeros((batch, length), jnp.int32).at[rows, first].add(eligible)
    begins = eligible & (first == index)
    words = jnp.argsort(jnp.where(begins, -order, 1.0), axis=1)
    words_first = jnp.take_along_axis(begins, words, axis=1)
    words_size = jnp.take_along_axis(sizes, words, axis=1)

    def choose(left: Array, word: tuple[Array, Array]) -> tuple[Array, Array]:
        begins, size = word
        taken = begins & (size <= left)
        return left - taken * size, taken

    _, taken = jax.lax.scan(choose, count, (words_first.T, words_size.T))
    chosen = jnp.zeros((batch, length), bool).at[rows, words].set(taken.T)
    return eligible & jnp.take_along_axis(chosen, first, axis=1)


def expected_count(
    items: np.ndarray,
    masking: Masking,
    weights: np.ndarray | None = None,
    eligible: Callable[[np.ndarray], np.ndarray] = lambda items: items >= 0,
) -> float:
    """Mean number of masked items an example, a constant that the loss is divided by.

    Args:
      items: `int32 [M, L]`, codes below zero where nothing can be masked.
      masking: The settings.
      weights: `float32 [M]`, what each example counts; None where all count 1.
      eligible: Which of some codes may be masked; by default all that are not below zero.
    """
    starts = range(0, len(items), 2**16)  # The array may be larger than memory.
    real = [eligible(items[start : start + 2**16]).sum(axis=1) for start in starts]
    counts = masking.count(np.concatenate(real))
    return float(np.mean(counts if weights is None else counts * weights.astype(np.float64)))
