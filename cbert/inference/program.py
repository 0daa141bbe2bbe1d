"""A model's functions on one device, compiled for a few sizes.

Legend: R rows (one masked position each), S queries, L positions, V real items, K items
listed, C width of the context vector.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import logsumexp

from cbert.data.padding import joined, padded_batches
from cbert.errors import UserError, shown
from cbert.inference.candidates import Candidates
from cbert.ranks import count_ahead
from cbert.schema import PAD_ITEM, Schema

Array = jax.Array

BATCH_SIZES = (1, 4, 16, 64)
# The most logits of one call; a larger vocabulary gets smaller batches.
MAX_LOGITS = 2**26
_LIST_LENGTHS = (16, 128, 1024, 8192)


@dataclasses.dataclass(frozen=True)
class Functions:
    """The functions of a model that predictions need, to be traced.

    Attributes:
      logits: `(params, codes int32 [R, L], context, positions int32 [R])` to
        `float32 [R, V]`: each row's item at its position, over all real items.
      context_vector: `(params, context)` to `float32 [R, C]`.
      prepare: Parameters in the form in which the others are fastest, made once.
    """

    logits: Callable[[Any, Array, dict[str, Array], Array], Array]
    context_vector: Callable[[Any, dict[str, Array]], Array]
    prepare: Callable[[Any], Any] = lambda params: params


@dataclasses.dataclass(frozen=True)
class Rows:
    """R masked positions, each with its items and its context.

    Attributes:
      codes: The item codes of each row, `MASK_ITEM` at masked positions.
      positions: The masked position to predict.
      context: Feature name to one value a row.
    """

    codes: Sequence[Sequence[int]]
    positions: Sequence[int]
    context: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(self.codes)


def sizes_within(most: int, batch_sizes: Any) -> list[int]:
    """The numbers of rows to compile for, ascending, none above `most`, or 1 where that is 0.

    Raises:
      UserError: `batch_sizes` are no such numbers.
    """
    if not isinstance(batch_sizes, Sequence) or isinstance(batch_sizes, str) or not batch_sizes:
        raise UserError(f"batch_sizes is {shown(batch_sizes)}; give some, such as (1, 4, 16)")
    for size in batch_sizes:
        if not isinstance(size, int) or size < 1:
            raise UserError(f"batch_sizes has {shown(size)}; give whole numbers from 1")
    return sorted({min(size, max(1, most)) for size in batch_sizes})


class Program:
    """Predicts rows in batches of a few sizes, padded to a few lengths."""

    def __init__(
        self,
        functions: Functions,
        params: Any,
        schema: Schema,
        longest: int,
        batch_sizes: Sequence[int] = BATCH_SIZES,
    ) -> None:
        self.functions, self.params = functions, params
        self.prepared = functions.prepare(params)
        self._schema = schema
        self.batch_sizes = sizes_within(MAX_LOGITS // len(schema.items), batch_sizes)
        self.lengths = padded_lengths(longest)
        # Compiled apart from ranking and scoring, because it takes nearly all of the time.
        self._logits = jax.jit(functions.logits)
        self._rank = jax.jit(rank, static_argnames="k")
        self._score = jax.jit(score)
        self._context_vector = jax.jit(functions.context_vector)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Each batch size with each length."""
        return [(size, length) for length in self.lengths for size in self.batch_sizes]

    def rank(
        self,
        rows: Rows,
        owners: np.ndarray,
        candidates: Sequence[Candidates],
        k: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The most probable candidates of each row.

        Args:
          rows: R masked positions.
          owners: `int [R]`, the query of each row.
          candidates: Of each of S queries the items that may be listed; where they are
            restricted, probabilities are among them alone.
          k: K.

        Returns:
          Log-probability (nats) `float32 [R, K]`, -inf where candidates are fewer, and item
          codes `int32 [R, K]`.
        """
        size = len(self._schema.items)
        padded = list_length(k, size)

        def listed(logits: Array, some: np.ndarray) -> tuple[Array, Array]:
            own = [candidates[owner] for owner in some]
            masks = np.stack([one.mask(size) for one in own])
            restricted = np.array([one.restricted for one in own])
            return self._rank(logits, masks, restricted, k=padded)

        log_probabilities, items = self._run(listed, rows, owners)
        return log_probabilities[:, :k], items[:, :k]

    def score(
        self, rows: Rows, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log-probability (nats), log-odds (nats) and rank of each row's target, each `[R]`.

        The rank counts from 1 among all real items; ties count against the target.
        """
        return self._run(self._score, rows, targets)

    def context_vector(self, context: dict[str, list[Any]]) -> np.ndarray:
        """The embedded context of one row, `float32 [C]`."""
        return np.asarray(self._context_vector(self.prepared, self._encode(context)))[0]

    def warm_up(self) -> Iterator[str]:
        """Compiles for every batch size and length; yields the name of each shape first."""
        for size, length in self.shapes:
            yield f"{size} x {length}"
            context = {feature.name: [None] * size for feature in self._schema.features}
            rows = Rows([[PAD_ITEM] * length] * size, [0] * size, context)
            everything = Candidates(None, np.array([], int), restricted=False)
            self.rank(rows, np.zeros(size, int), [everything], 1)
            self.score(rows, np.zeros(size, np.int32))

    def _run(self, function: Callable, rows: Rows, *columns: np.ndarray) -> tuple:
        longest = max(map(len, rows.codes))
        length = next(size for size in self.lengths if size >= longest)
        codes = np.full((len(rows), length), PAD_ITEM, np.int32)
        for row, given in zip(codes, rows.codes, strict=True):
            row[: len(given)] = given
        arrays = (codes, self._encode(rows.context), np.array(rows.positions, np.int32))

        def results(indices: np.ndarray) -> tuple:
            take = operator.itemgetter(indices)
            logits = self._logits(self.prepared, *jax.tree.map(take, arrays))
            return function(logits, *map(take, columns))

        batches = padded_batches(len(rows), self.batch_sizes)
        return joined((results(indices), count) for indices, count in batches)

    def _encode(self, context: dict[str, list[Any]]) -> dict[str, np.ndarray]:
        encode = self._schema.encode_feature
        return {name: encode(name, column) for name, column in context.items()}


def padded_lengths(longest: int) -> list[int]:
    """One length for short examples, else 16, 32, 64, ... up to the longest."""
    lengths, length = [], 16
    while length < longest:
        lengths.append(length)
        length *= 2
    return [*lengths, longest]


def list_length(k: int, items: int) -> int:
    """One of a few lengths of lists, at least k."""
    return min(next((size for size in _LIST_LENGTHS if size >= k), k), items)


def rank(logits: Array, candidates: Array, restricted: Array, k: int) -> tuple[Array, Array]:
    """Log-probability (nats) and code of the best candidates, `[R, K]`; see `Program.rank`."""
    listed = jnp.where(candidates, logits, -jnp.inf)
    counted = jnp.where(restricted[:, None], listed, logits)
    best, items = lax.top_k(listed, k)
    return best - logsumexp(counted, axis=1, keepdims=True), items


def score(logits: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Log-probability (nats), log-odds (nats) and rank of the targets, see `Program.score`."""
    own = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
    other = jnp.arange(logits.shape[1]) != targets[:, None]
    others = logsumexp(jnp.where(other, logits, -jnp.inf), axis=1)
    ahead = count_ahead(logits, own, other)
    return own - jnp.logaddexp(own, others), own - others, ahead + 1
