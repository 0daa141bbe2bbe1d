"""A multi-valued feature: a list of strings whose order says nothing, such as liked styles.

Legend: M examples.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from cbert.errors import UserError
from cbert.schema.slices import by_value
from cbert.schema.tokens import PAD_VALUE, UNKNOWN_VALUE, TokenFeature
from cbert.schema.values import check_size, check_text


@dataclasses.dataclass(frozen=True)
class MultiValued(TokenFeature[list[str]]):
    """Some of some strings; rows are their codes `int32 [M, max_values]`, padded at the end.

    All unknown strings of a value are one code, and an empty list is all padding.

    Attributes:
      max_values: The most values that it takes at once.
    """

    kind: ClassVar[str] = "multi_valued"
    wanted: ClassVar[str] = "a list of strings"

    max_values: int = 1

    @classmethod
    def holds(cls, value: object) -> bool:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)

    @classmethod
    def check_raw(cls, name: str, value: list[str]) -> None:
        for one in value:
            check_text(one, f"context {name!r}")

    @classmethod
    def entries_of(cls, value: list[str]) -> int:
        return len(set(value))

    @property
    def entries(self) -> int:
        return self.max_values

    def with_entries(self, entries: int) -> Self:
        return dataclasses.replace(self, max_values=max(entries, 1))

    def check(self) -> None:
        super().check()
        check_size(f"{self.label}: max_values", self.max_values)

    def _encode(
        self, column: Sequence[list[str] | None], items: Mapping[str, int]
    ) -> np.ndarray:
        coded = self.missing(len(column))
        for row, values in zip(coded, column, strict=True):
            if values is not None:
                codes = dict.fromkeys(self.codes.get(v, UNKNOWN_VALUE) for v in values)
                kept = list(codes)[: self.max_values]
                row[0] = PAD_VALUE
                row[: len(kept)] = kept
        return coded

    def validate(self, value: list[str], items: Mapping[str, int]) -> list[str]:
        super().validate(value, items)
        unknown = self.unknown(value, items)
        coded = len(set(value)) - len(unknown) + bool(unknown)
        if coded > self.max_values:
            raise UserError(
                f"context {self.name!r} holds {coded} values; give at most {self.max_values}"
            )
        return unknown

    def slices(self, column: Sequence[list[str] | None]) -> dict[str, np.ndarray]:
        return by_value([value or [] for value in column])

    def form(self) -> dict[str, object]:
        return {"control": "checkboxes", "values": self.values, "max_values": self.max_values}
