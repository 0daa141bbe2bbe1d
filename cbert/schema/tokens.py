"""Features whose values are strings that are looked up in a table.

Legend: M examples, K entries of a coded row.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

from cbert.errors import UserError, shown
from cbert.schema import identifiers
from cbert.schema.feature import Feature
from cbert.schema.values import check_names

PAD_VALUE, MISSING_VALUE, UNKNOWN_VALUE = 0, 1, 2
SPECIAL_VALUES = 3

V = TypeVar("V", str, list[str])


@dataclasses.dataclass(frozen=True)
class TokenFeature(Feature[V]):
    """A categorical or multi-valued feature; rows are codes `int32 [M, K]`, padded at the end.

    Attributes:
      values: Known values, most frequent first.
    """

    values: tuple[str, ...] = ()

    @classmethod
    def accumulator(cls, name: str, width: int | None, min_count: int) -> "ValueCounter":
        return ValueCounter(cls, name, width, min_count)

    @functools.cached_property
    def codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values, SPECIAL_VALUES)}

    @property
    def value_count(self) -> int:
        return len(self.values)

    def check(self) -> None:
        super().check()
        check_names(self.values, f"{self.label}: values")

    def missing(self, rows: int = 1) -> np.ndarray:
        return self._filled(rows, MISSING_VALUE)

    def dropped(self) -> np.ndarray:
        """Missing, or unknown: a rare value of the user's must not surprise the model."""
        return np.concatenate([self.missing(), self._filled(1, UNKNOWN_VALUE)])

    def _filled(self, rows: int, first: int) -> np.ndarray:
        coded = np.full((rows, self.entries), PAD_VALUE, np.int32)
        coded[:, 0] = first
        return coded

    def any_known(self, coded: np.ndarray) -> bool:
        return bool((coded >= SPECIAL_VALUES).any())

    def levels(self, coded: np.ndarray, most: int) -> tuple[np.ndarray, int]:
        level, count = coded - SPECIAL_VALUES + 1, min(len(self.values), most)
        return np.where((level > 0) & (level <= count), level, 0), count

    def unknown(self, strings: Iterable[str], items: Mapping[str, int]) -> list[str]:
        return [value for value in dict.fromkeys(strings) if value not in self.codes]


def frequent(name: str, counts: Mapping[str, int], min_count: int) -> tuple[str, ...]:
    """The values that occur often enough, most frequent first; raises `UserError` for none."""
    values = [value for value, count in counts.items() if count >= min_count]
    if not values and counts:
        raise UserError(
            f"context feature {shown(name)} has no value that occurs {min_count} times; "
            "drop it, name it id or group if it is one, write coarser values, such as the "
            "month of a date, or give value_min_count=N, a lower one"
        )
    return tuple(sorted(values, key=lambda value: (-counts[value], value)))


def default_width(values: int) -> int:
    """1.6 n^0.56 rounded up to a multiple of 8, between 8 and 64."""
    return min(64, max(8, 8 * math.ceil(1.6 * max(values, 1) ** 0.56 / 8)))


class ValueCounter:
    """Counts the examples that have each value of a token feature."""

    def __init__(
        self, feature: type[TokenFeature], name: str, width: int | None, min_count: int
    ) -> None:
        self._feature, self._name, self._width = feature, name, width
        self._min_count = min_count
        self._counts: collections.Counter[str] = collections.Counter()

    def observe(self, value: str | list[str]) -> None:
        self._counts.update([value] if isinstance(value, str) else set(value))

    def finish(self) -> TokenFeature:
        values = frequent(self._name, self._counts, self._min_count)
        if self._feature.holds(""):  # A list is no id.
            identifiers.point_out(self._name, len(self._counts), self._counts.total())
        width = default_width(len(values)) if self._width is None else self._width
        return self._feature(self._name, width, values)
