"""A categorical feature: one string, such as an occasion.

Legend: M examples.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from cbert.schema.slices import by_value
from cbert.schema.tokens import MISSING_VALUE, UNKNOWN_VALUE, TokenFeature
from cbert.schema.values import check_text


@dataclasses.dataclass(frozen=True)
class Categorical(TokenFeature[str]):
    """One of some strings; rows are its code `int32 [M, 1]`."""

    kind: ClassVar[str] = "categorical"
    wanted: ClassVar[str] = "a string, in quotes"

    @classmethod
    def holds(cls, value: object) -> bool:
        return isinstance(value, str)

    @classmethod
    def check_raw(cls, name: str, value: str) -> None:
        check_text(value, f"context {name!r}")

    def _encode(self, column: Sequence[str | None], items: Mapping[str, int]) -> np.ndarray:
        get = self.codes.get
        codes = [
            MISSING_VALUE if value is None else get(value, UNKNOWN_VALUE) for value in column
        ]
        return np.array(codes, np.int32).reshape(-1, 1)

    def validate(self, value: str, items: Mapping[str, int]) -> list[str]:
        super().validate(value, items)
        return self.unknown([value], items)

    def slices(self, column: Sequence[str | None]) -> dict[str, np.ndarray]:
        return by_value([[] if value is None else [value] for value in column])

    def form(self) -> dict[str, object]:
        return {"control": "select", "values": self.values}

    def example(self) -> str | None:
        return self.values[0] if self.values else None
