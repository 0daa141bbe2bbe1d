"""A split as columns in memory; `column_cache` keeps them in a file.

Legend: M examples, L positions, T values of a target, P passages.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow

from cbert.schema import PAD_ITEM

# The columns `[M, L]` that a batch cuts to its padded length.
TOKEN_COLUMNS = ("items", "segments", "tags", "word_starts")
_BLOCK = 2**16  # Rows whose tokens are counted at once.


class Texts(Sequence[str]):
    """Strings that stay in the file's own memory until one is asked for."""

    def __init__(self, column: pyarrow.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:  # Else a part of a large split would make a list of the whole.
                return self._column.slice(start, max(stop - start, 0)).to_pylist()
            return self._column.to_pylist()[index]
        return self._column[int(index)].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._column.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


@dataclasses.dataclass(frozen=True)
class Split:
    """One split, encoded by a schema. M examples of at most L items.

    Attributes:
      ids: `[M]` strings.
      groups: `[M]` strings.
      contexts: `[M]` the contexts as JSON text, as they were given.
      items: `int32 [M, L]`, codes of the schema, padded at the end with `PAD_ITEM`; the codes
        of a text's tokens.
      context: Feature name to its coded column, see `Feature.encode`.
      reference: `log_probability`, `rank` and `without_context`, each `float32 [M, L]`, the
        last one NaN where it is not known; or None.
      token_columns: Further columns of each token of a text; empty for items:
        `segments` `int8 [M, L]`, 1 in the second text and 0 elsewhere;
        `tags` `int32 [M, L]`, the tag's code at the first piece of each word and
        `UNKNOWN_LABEL` elsewhere; `word_starts` `int32 [M, L]`, the word's index at its first
        piece and -1 elsewhere.
      targets: The targets of a supervised task, by the kind of the schema's target:
        `label` `int32 [M]` (`UNKNOWN_LABEL` where missing); `labels` `float32 [M, T]` of 0
        and 1 (-1 where missing), and `unknown_labels` `int32 [M]`, how many labels of each
        list the schema does not know; `number` `float32 [M]` (NaN where missing); `start` and
        `end` `int32 [M]`, the first and the last token of the answer, both 0, the position of
        [CLS], where there is none, and both -1 where it was cut off with its passage.
      texts: `[M]` the texts as JSON, as they were given; empty for items.
      example_columns: Further columns of each example: `weight` `float32 [M]`, where some
        example of the data set has a weight, and else none.
    """

    ids: Sequence[str]
    groups: Sequence[str]
    contexts: Sequence[str]
    items: np.ndarray
    context: dict[str, np.ndarray]
    reference: dict[str, np.ndarray] | None
    token_columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    targets: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    texts: Sequence[str] = dataclasses.field(default_factory=list)
    example_columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """`int32 [M]`, items of each example."""
        starts = range(0, len(self), _BLOCK)
        blocks = (self.items[start : start + _BLOCK] != PAD_ITEM for start in starts)
        counts = [block.sum(axis=1, dtype=np.int32) for block in blocks]
        return np.concatenate(counts) if counts else np.zeros(0, np.int32)

    @functools.cached_property
    def in_windows(self) -> bool:
        """Whether the examples are windows of passages; all are, or none."""
        return len(self.texts) > 0 and "window" in json.loads(self.texts[0])

    def record_ids(self, rows: np.ndarray) -> list[str]:
        """The ids of the records that some examples were made of: of windows, without `#0`."""
        ids = [self.ids[row] for row in rows]
        return [name.rpartition("#")[0] for name in ids] if self.in_windows else ids

    @functools.cached_property
    def passages(self) -> tuple[np.ndarray, np.ndarray]:
        """The examples sorted by the records that they were made of.

        Returns:
          `int32 [M]`, the windows of a passage after each other in its order, and the passages
          in the order of the first window that the split has of them; and `int64 [P]`, where
          each passage begins. What is whole keeps its place.
        """
        rows = np.arange(len(self), dtype=np.int32)
        if not self.in_windows:
            return rows, rows.astype(np.int64)
        first: dict[str, int] = {}
        names = self.record_ids(rows)
        passages = np.array([first.setdefault(name, row) for row, name in enumerate(names)])
        numbers = np.array([int(name.rpartition("#")[2]) for name in self.ids])
        order = np.lexsort((numbers, passages))
        begins = np.flatnonzero(np.diff(passages[order], prepend=-1))
        return rows[order], begins

    @property
    def weights(self) -> np.ndarray | None:
        """What each example counts in the training loss, `float32 [M]`; None for 1 each."""
        return self.example_columns.get("weight")

    @property
    def mean_weight(self) -> float:
        """The mean of the examples' weights."""
        return 1.0 if self.weights is None else float(self.weights.mean(dtype=np.float64))

    @property
    def columns(self) -> dict[str, Any]:
        """The arrays that a step reads, which are placed on the devices."""
        return {
            "items": self.items,
            "context": self.context,
            **self.token_columns,
            **self.targets,
            **self.example_columns,
        }


def evenly_spaced(split: Split, count: int) -> Split:
    """`count` of the examples, at equal distances; all where it is 0 or there are fewer.

    Of examples that are windows these are about as many, the windows of whole passages.
    """
    if not 0 < count < len(split):
        return split
    rows, begins = split.passages
    ends = np.append(begins[1:], len(rows))
    wanted = max(1, count * len(begins) // len(split))
    chosen = np.arange(wanted) * len(begins) // wanted
    taken = [rows[begins[each] : ends[each]] for each in chosen]
    return selected(split, np.concatenate(taken).tolist())


def selected(split: Split, rows: Sequence[int]) -> Split:
    """The examples of some rows, in their order."""

    def take(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: column[rows] for name, column in table.items()}

    return Split(
        ids=[split.ids[row] for row in rows],
        groups=[split.groups[row] for row in rows],
        contexts=[split.contexts[row] for row in rows],
        items=split.items[rows],
        context=take(split.context),
        reference=take(split.reference) if split.reference else None,
        token_columns=take(split.token_columns),
        targets=take(split.targets),
        texts=[split.texts[row] for row in rows] if len(split.texts) else [],
        example_columns=take(split.example_columns),
    )


def joined(parts: list[Split]) -> Split:
    """The examples of all parts; the reference only where every part has one."""

    def join(name: str) -> dict[str, np.ndarray]:
        tables = [getattr(part, name) for part in parts]
        return {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}

    return Split(
        ids=[text for part in parts for text in part.ids],
        groups=[text for part in parts for text in part.groups],
        contexts=[text for part in parts for text in part.contexts],
        items=np.concatenate([part.items for part in parts]),
        reference=join("reference") if all(part.reference for part in parts) else None,
        context=join("context"),
        token_columns=join("token_columns"),
        targets=join("targets"),
        texts=[text for part in parts for text in part.texts],
        example_columns=join("example_columns"),
    )
