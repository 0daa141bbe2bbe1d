"""Features whose values are numbers to compute with.

Legend: M examples.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from cbert.errors import shown
from cbert.schema.feature import Feature
from cbert.schema.values import FARTHEST, check_near, check_scale

V = TypeVar("V", float, list[float])

# One farther than this is encoded as this far: methods multiply it up to four times over, and
# the softmax of much larger logits is not finite in float32.
LIMIT = 1e4


@dataclasses.dataclass(frozen=True)
class NumberFeature(Feature[V]):
    """A number or a vector; rows are `float32 [M, 1 + entries]`.

    A row is 1 and the standardised numbers, none beyond `LIMIT`, or all zero where the feature
    is missing.

    Attributes:
      mean: The mean of its numbers over the training split.
      scale: Their standard deviation, 1 where that is zero.
    """

    mean: float = 0.0
    scale: float = 1.0

    def check(self) -> None:
        super().check()
        check_scale(f"{self.label}: ", self.mean, self.scale)

    def missing(self, rows: int = 1) -> np.ndarray:
        return np.zeros((rows, 1 + self.entries), np.float32)

    def _encode(self, column: Sequence[V | None], items: Mapping[str, int]) -> np.ndarray:
        rows = self.missing(len(column))
        observed = np.array([value is not None for value in column], bool)
        rows[:, 0] = observed
        values = np.array([value for value in column if value is not None], np.float64)
        values = values.reshape(-1, self.entries)
        with np.errstate(over="ignore"):
            standardised = (values - self.mean) / self.scale
        far = values[np.abs(standardised) > FARTHEST]
        if len(far):
            check_near(f"context feature {shown(self.name)}", far[0], self.mean, self.scale)
        rows[observed, 1:] = standardised.clip(-LIMIT, LIMIT)
        return rows
