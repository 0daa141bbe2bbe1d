"""What an evaluation masks: the items of a set or sequence, or the tokens of a text.

Legend: M examples, L positions, Q queries.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from cbert.data.columns import Split
from cbert.data.hashing import uniform
from cbert.data.masking import ONE
from cbert.errors import UserError
from cbert.schema import Schema
from cbert.schema.tokenizer import CLS, PAD, SEP

EACH, LAST = "each", "last"
OTHERS = f"take {EACH!r} or {ONE!r}"


@dataclasses.dataclass(frozen=True)
class ItemQueries:
    """Q masked items of a split.

    Attributes:
      rows: `int32 [Q]`, the example.
      positions: `int32 [Q]`, the masked position.
      items: `int32 [Q]`, the item that stands there.
      skipped: Items that cannot be predicted, because they are not in the vocabulary; where one
        position an example is masked, and of texts, the examples without any to mask.
    """

    rows: np.ndarray
    positions: np.ndarray
    items: np.ndarray
    skipped: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {"positions": self.positions}

    @property
    def weights(self) -> np.ndarray:
        return np.ones(len(self))

    def first(self, count: int) -> "ItemQueries":
        """The first queries, at most so many."""
        some = slice(0, count)
        return ItemQueries(self.rows[some], self.positions[some], self.items[some], 0)


def read_queries(columns: Mapping[str, np.ndarray], name: str, schema: Schema) -> ItemQueries:
    """The queries of an evaluation's table, whose column `name` has the masked items."""
    items = np.array([schema.codes[item] for item in columns[name]], np.int32)
    rows = np.arange(len(items), dtype=np.int32)
    return ItemQueries(rows, columns["position"], items, 0)


def _query(split: Split, may: np.ndarray, masking: str) -> ItemQueries:
    """Every position of an example in turn (`each`), or one by a stable hash of its id (`one`).

    Args:
      split: M examples.
      may: `bool [M, L]`, which positions may be masked; an example without any is skipped.
      masking: `each` or `one`.
    """
    counts = may.sum(axis=1)
    if masking == EACH:
        rows, positions = np.nonzero(may)
    else:
        named = zip(split.ids, counts, strict=True)
        chosen = np.array([int(uniform(f"question {name}") * n) for name, n in named])
        rows = np.nonzero(counts)[0]
        positions = np.argmax(np.cumsum(may, axis=1) > chosen[:, None], axis=1)[rows]
    rows, positions = rows.astype(np.int32), positions.astype(np.int32)
    return ItemQueries(rows, positions, split.items[rows, positions], int((counts == 0).sum()))


def query_each(split: Split) -> ItemQueries:
    """Every real item of every example is masked once."""
    queries = _query(split, split.items >= 0, EACH)
    return dataclasses.replace(queries, skipped=int(split.lengths.sum()) - len(queries))


def query_one(split: Split) -> ItemQueries:
    """One real item an example, chosen by a stable hash of its id."""
    return _query(split, split.items >= 0, ONE)


def one_an_example(masking: str) -> str:
    """What is masked where an example has one query: the `last` item if evaluations ask it."""
    return LAST if masking == LAST else ONE


def query_last(split: Split) -> ItemQueries:
    """The last item of every sequence, if it is in the vocabulary."""
    is_last = np.arange(split.items.shape[1]) == split.lengths[:, None] - 1
    return _query(split, is_last & (split.items >= 0), EACH)


def eligible(codes: Any, schema: Schema) -> Any:
    """Which tokens may be masked: no padding, no [CLS], no [SEP]; for NumPy and JAX alike."""
    chosen = codes >= 0
    for token in (PAD, CLS, SEP):
        chosen &= codes != schema.codes[token]
    return chosen


def query_tokens(split: Split, schema: Schema, masking: str) -> ItemQueries:
    """The masked tokens of an evaluation, the same for every method.

    Raises:
      UserError: no text of the split has a token, or the last one is asked for.
    """
    if masking == LAST:
        raise UserError(f"masking is {LAST!r}, which sequences of items alone have; {OTHERS}")
    queries = _query(split, eligible(split.items, schema), masking)
    if not len(queries):
        raise UserError("no text of the split has a token; take another split")
    return queries
