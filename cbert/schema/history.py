"""A history: a list of items of the vocabulary, in order, such as earlier purchases.

Legend: M examples.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from cbert.schema.feature import Feature
from cbert.schema.slices import by_range
from cbert.schema.values import PAD_ITEM, UNKNOWN_ITEM, check_size, check_text

WIDTH = 64


@dataclasses.dataclass(frozen=True)
class History(Feature[list[str]]):
    """Items of the vocabulary, the latest last; rows are `int32 [M, 1 + max_items]`.

    A row is 1 and the items' codes, padded at the end. Where the feature is missing it is 0
    and padding, so an empty list, 1 and padding, is something else. Items may repeat. Of a list
    that is too long the latest items are kept.

    Attributes:
      max_items: The most items that it holds.
    """

    kind: ClassVar[str] = "history"
    wanted: ClassVar[str] = "a list of items"
    named_only: ClassVar[bool] = True

    max_items: int = 1

    @classmethod
    def holds(cls, value: object) -> bool:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)

    @classmethod
    def check_raw(cls, name: str, value: list[str]) -> None:
        for item in value:
            check_text(item, f"context {name!r}")

    @classmethod
    def entries_of(cls, value: list[str]) -> int:
        return len(value)

    @classmethod
    def accumulator(cls, name: str, width: int | None, min_count: int) -> "HistoryAccumulator":
        return HistoryAccumulator(name, WIDTH if width is None else width)

    @property
    def entries(self) -> int:
        return self.max_items

    def with_entries(self, entries: int) -> Self:
        return dataclasses.replace(self, max_items=max(entries, 1))

    def check(self) -> None:
        super().check()
        check_size(f"{self.label}: max_items", self.max_items)

    def missing(self, rows: int = 1) -> np.ndarray:
        coded = np.full((rows, 1 + self.max_items), PAD_ITEM, np.int32)
        coded[:, 0] = 0
        return coded

    def _encode(
        self, column: Sequence[list[str] | None], items: Mapping[str, int]
    ) -> np.ndarray:
        coded = self.missing(len(column))
        for row, history in zip(coded, column, strict=True):
            if history is not None:
                latest = history[-self.max_items :]
                row[0] = 1
                row[1 : 1 + len(latest)] = [items.get(item, UNKNOWN_ITEM) for item in latest]
        return coded

    def validate(self, value: list[str], items: Mapping[str, int]) -> list[str]:
        super().validate(value, items)
        return self.unknown(value, items)

    def unknown(self, strings: Iterable[str], items: Mapping[str, int]) -> list[str]:
        return [item for item in dict.fromkeys(strings) if item not in items]

    def slices(self, column: Sequence[list[str] | None]) -> dict[str, np.ndarray]:
        """The examples in each range of the number of items."""
        lengths = [np.nan if history is None else len(history) for history in column]
        ranges = by_range(np.array(lengths, float))
        return {f"{label} items": inside for label, inside in ranges.items()}

    def any_known(self, coded: np.ndarray) -> bool:
        return bool((coded[:, 1:] >= 0).any())

    def levels(self, coded: np.ndarray, most: int) -> tuple[np.ndarray, int]:
        """The known items in a history, each once."""
        level = np.sort(coded[:, 1:] + 1, axis=1)
        again = np.zeros(level.shape, bool)
        again[:, 1:] = level[:, 1:] == level[:, :-1]
        return np.where((level > 0) & (level <= most) & ~again, level, 0), most

    def form(self) -> dict[str, object]:
        return {"control": "note", "note": "over HTTP it is a list of items"}


class HistoryAccumulator:
    """Has nothing to learn from values: their items are coded by the data set's vocabulary."""

    def __init__(self, name: str, width: int) -> None:
        self._feature = History(name, width)

    def observe(self, value: list[str]) -> None:
        del value  # The number of items is known without it, see `with_entries`.

    def finish(self) -> History:
        return self._feature
