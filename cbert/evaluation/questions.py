"""Questions: which hidden item of which example a model is asked for, and its answers."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cbert import parallel, progress
from cbert.data.source import Split, bucket_bounds
from cbert.data.splits import uniform
from cbert.errors import UserError
from cbert.model.contextual_bert import ContextualBert
from cbert.model.cross_entropy import score
from cbert.schema import MASK_ITEM

EACH, ONE = "each", "one"


@dataclasses.dataclass(frozen=True)
class Questions:
    """Q questions to a split.

    Attributes:
      rows: `int32 [Q]`, the example.
      places: `int32 [Q]`, the position that is hidden.
      items: `int32 [Q]`, the item that stands there.
      skipped: Questions that cannot be asked, for their item is not in the vocabulary.
    """

    rows: np.ndarray
    places: np.ndarray
    items: np.ndarray
    skipped: int

    def __len__(self) -> int:
        return len(self.rows)


def ask_each(split: Split) -> Questions:
    """Every real item of every example is hidden once."""
    rows, places = np.nonzero(split.items >= 0)
    return _questions(split, rows, places, int(split.lengths.sum()) - len(rows))


def ask_one(split: Split) -> Questions:
    """One real item an example, chosen by a stable hash of its id."""
    real = split.items >= 0
    known = real.sum(axis=1)
    chosen = np.array(
        [int(uniform(f"question {name}") * n) for name, n in zip(split.ids, known, strict=True)]
    )
    places = np.argmax(np.cumsum(real, axis=1) > chosen[:, None], axis=1)
    rows = np.nonzero(known)[0]
    return _questions(split, rows, places[rows], int((known == 0).sum()))


def make(split: Split, masking: str) -> Questions:
    """Questions by the name of `eval.masking`; raises `UserError` when none can be asked."""
    questions = ask_each(split) if masking == EACH else ask_one(split)
    if not len(questions):
        raise UserError("no item of the split is in the schema's vocabulary; nothing to ask")
    return questions


def _questions(split: Split, rows: np.ndarray, places: np.ndarray, skipped: int) -> Questions:
    items = split.items[rows, places]
    return Questions(rows.astype(np.int32), places.astype(np.int32), items, skipped)


@functools.lru_cache(maxsize=8)
def make_answer(model: ContextualBert) -> Callable:
    """The mapped function that hides items and scores them.

    Compiled once a length, for all runs of one model in a process.
    """

    def answer(
        params: dict, data: dict, rows: jax.Array, places: jax.Array, length: int
    ) -> tuple[jax.Array, jax.Array]:
        codes = data["items"][rows, :length]
        here = jnp.arange(len(rows))
        items = codes[here, places]
        codes = codes.at[here, places].set(MASK_ITEM)
        context = {name: column[rows] for name, column in data["context"].items()}
        found, table, bias = model.apply({"params": params}, codes, context, places[:, None])
        return score(found[:, 0], table, bias, items)

    return parallel.map_questions(answer)


def answer_all(
    answer: Callable,
    params: dict,
    data: dict,
    split: Split,
    questions: Questions,
    batch_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Answers all questions on all devices.

    Args:
      answer: From `make_answer`.
      params: Replicated parameters.
      data: The split's columns, replicated.
      split: The split.
      questions: What is asked.
      batch_size: Questions at a time, over all devices.

    Returns:
      Log-probability (nats) `float32 [Q]` and rank `int32 [Q]`, in the order asked.
    """
    devices = parallel.here_count()
    batch_size = -(-batch_size // devices) * devices
    log_probability = np.empty(len(questions), np.float32)
    rank = np.empty(len(questions), np.int32)

    def keep(chosen: np.ndarray, found: tuple[jax.Array, jax.Array]) -> None:
        log_probability[chosen], rank[chosen] = (
            np.asarray(part).reshape(-1)[: len(chosen)] for part in found
        )

    batches = _batches(split.lengths[questions.rows], batch_size)
    before = None
    for length, chosen in progress.bar(
        batches, desc="evaluating", unit=" batches", leave=False
    ):
        # The last batch of a length is filled with repeats, so that nothing is recompiled.
        filled = np.resize(chosen, batch_size)
        rows, places = questions.rows[filled], questions.places[filled]
        parts = parallel.split_here(rows), parallel.split_here(places)
        found = answer(params, data, *parts, length)
        if before:  # One batch late, so that the devices have the next one already.
            keep(*before)
        before = chosen, found
    if before:
        keep(*before)
    return log_probability, rank


def _batches(lengths: np.ndarray, batch_size: int) -> list[tuple[int, np.ndarray]]:
    """Each batch's padded length, and which questions it holds: up to `batch_size`."""
    bounds = bucket_bounds(lengths, 8)
    padded = bounds[np.searchsorted(bounds, lengths)]
    batches = []
    for length in bounds:
        inside = np.nonzero(padded == length)[0]
        for start in range(0, len(inside), batch_size):
            batches.append((int(length), inside[start : start + batch_size]))
    return batches
