"""A vector: a list of numbers of one length, such as the embedding of a picture.

Legend: M examples.
"""

import array
import dataclasses
from typing import ClassVar

import numpy as np

from cbert.schema.numbers import NumberFeature
from cbert.schema.values import check_finite, check_size, is_finite

MOST_WIDTH = 64
BLOCK = 2**16


@dataclasses.dataclass(frozen=True)
class Vector(NumberFeature[list[float]]):
    """A list of numbers; rows are `float32 [M, 1 + dimension]`, standardised all alike.

    Attributes:
      dimension: Its length.
    """

    kind: ClassVar[str] = "vector"
    wanted: ClassVar[str] = "a list of numbers"
    same_length: ClassVar[bool] = True
    discrete: ClassVar[bool] = False

    dimension: int = 0

    @classmethod
    def holds(cls, value: object) -> bool:
        return isinstance(value, list) and all(isinstance(one, int | float) for one in value)

    @classmethod
    def check_raw(cls, name: str, value: list[float]) -> None:
        for one in value:
            check_finite(name, one)

    @classmethod
    def entries_of(cls, value: list[float]) -> int:
        return len(value)

    @classmethod
    def accumulator(cls, name: str, width: int | None, min_count: int) -> "Moments":
        return Moments(name, width)

    @property
    def entries(self) -> int:
        return self.dimension

    def check(self) -> None:
        super().check()
        check_size(f"{self.label}: dimension", self.dimension)

    @property
    def described(self) -> str:
        return f"a vector of {self.dimension} finite numbers"

    def accepts(self, value: object) -> bool:
        if not isinstance(value, list) or len(value) != self.dimension:
            return False
        return all(map(is_finite, value))

    def form(self) -> dict[str, object]:
        return {
            "control": "note",
            "dimension": self.dimension,
            "note": f"over HTTP it is a list of {self.dimension} numbers",
        }


class Moments:
    """Mean and deviation of numbers taken in blocks, so that none need be kept.

    Blocks are merged as in T. Chan, G. Golub and R. LeVeque, "Updating Formulae and a
    Pairwise Algorithm for Computing Sample Variances", 1979, equation 2.1.
    """

    def __init__(self, name: str, width: int | None) -> None:
        self._name, self._width = name, width
        self._dimension = 0
        self._block = array.array("d")
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        self._least, self._largest = np.inf, -np.inf

    def observe(self, value: list[float]) -> None:
        self._dimension = len(value)
        self._block.extend(value)
        if len(self._block) >= BLOCK:
            self._merge()

    def _merge(self) -> None:
        values = np.array(self._block, np.float64)
        self._block = array.array("d")
        mean, count = float(values.mean()), self._count + len(values)
        squares = float(np.square(values - mean).sum())
        apart = mean - self._mean
        if self._count:
            squares += self._squares + apart**2 * self._count * len(values) / count
            mean = self._mean + apart * len(values) / count
        self._count, self._mean, self._squares = count, mean, squares
        self._least = min(self._least, float(values.min()))
        self._largest = max(self._largest, float(values.max()))

    def finish(self) -> Vector:
        if self._block:
            self._merge()
        scale = 1.0
        if self._least < self._largest:
            scale = float(np.sqrt(self._squares / self._count))
        width = min(self._dimension, MOST_WIDTH) if self._width is None else self._width
        return Vector(self._name, width, self._mean, scale, self._dimension)
