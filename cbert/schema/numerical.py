"""A numerical feature: one number, such as an age.

Legend: M examples.
"""

import array
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from cbert.errors import UserError, shown, warn
from cbert.schema import identifiers
from cbert.schema.numbers import NumberFeature
from cbert.schema.slices import by_range
from cbert.schema.values import check_finite, is_finite

BINS = 16
WIDTH = 16


@dataclasses.dataclass(frozen=True)
class Numerical(NumberFeature[float]):
    """A number; rows are `float32 [M, 2]`: whether it was observed, then standardised.

    Attributes:
      edges: Increasing inner edges of its bins, quantiles of the training split.
    """

    kind: ClassVar[str] = "numerical"
    wanted: ClassVar[str] = "a number, without quotes"

    edges: tuple[float, ...] = ()

    @classmethod
    def holds(cls, value: object) -> bool:
        return isinstance(value, int | float)

    @classmethod
    def check_raw(cls, name: str, value: float) -> None:
        check_finite(name, value)

    @classmethod
    def accumulator(cls, name: str, width: int | None, min_count: int) -> "NumberList":
        return NumberList(name, WIDTH if width is None else width)

    @property
    def standardised_edges(self) -> tuple[float, ...]:
        """The edges in the unit of coded rows."""
        return tuple((edge - self.mean) / self.scale for edge in self.edges)

    def check(self) -> None:
        super().check()
        for edge in self.edges:
            if not is_finite(edge):
                raise UserError(
                    f"{self.label}: an edge is {shown(edge)}; edges must be finite numbers"
                )
        for one, following in itertools.pairwise(self.edges):
            if one >= following:
                raise UserError(
                    f"{self.label}: the edge {shown(following)} follows {shown(one)}; "
                    "edges must increase"
                )

    def accepts(self, value: object) -> bool:
        return is_finite(value)

    def slices(self, column: Sequence[float | None]) -> dict[str, np.ndarray]:
        return by_range(
            np.array([np.nan if value is None else value for value in column], float)
        )

    def levels(self, coded: np.ndarray, most: int) -> tuple[np.ndarray, int]:
        """The bins, whatever `most` is."""
        edges = np.array(self.standardised_edges, np.float32)
        index = np.searchsorted(edges, coded[:, 1:], side="right")
        return np.where(coded[:, :1] > 0, index + 1, 0), len(edges) + 1

    def form(self) -> dict[str, object]:
        return {"control": "slider", **self.slider()}

    def example(self) -> float:
        return self.slider()["middle"]

    def slider(self) -> dict[str, float]:
        """A range that holds nearly all of training's values; a round step of about 1/50."""
        low, high = self.mean - 2 * self.scale, self.mean + 2 * self.scale
        if self.edges:
            # A slider of values that are never negative, such as ages, does not begin below 0.
            some_negative = min(self.edges[0], self.mean) < 0
            low = min(low if some_negative else max(low, 0.0), self.mean, self.edges[0])
            high = max(high, self.edges[-1])
        # The range is so wide that its ends differ in float64 even for large values.
        lacking = 1e-6 * max(abs(low), abs(high)) - (high - low)
        if lacking > 0:
            low, high = low - lacking / 2, high + lacking / 2
        magnitude = 10.0 ** math.floor(math.log10((high - low) / 50))
        step = next(n * magnitude for n in (1, 2, 5, 10) if n * magnitude * 50 >= high - low)
        digits = max(0, -math.floor(math.log10(step)))
        return {
            "low": round(math.floor(low / step) * step, digits),
            "high": round(math.ceil(high / step) * step, digits),
            "step": round(step, digits),
            "middle": round(round(self.mean / step) * step, digits),
        }


class NumberList:
    """Keeps 8 bytes a value, which exact quantiles need."""

    def __init__(self, name: str, width: int) -> None:
        self._name, self._width = name, width
        self._values = array.array("d")

    def observe(self, value: float) -> None:
        self._values.append(value)

    def finish(self) -> Numerical:
        values = np.frombuffer(self._values, np.float64)
        # Equal values may have a rounding error for a deviation, too small to divide by.
        scale = float(values.std()) if values.min() < values.max() else 1.0
        if not scale:
            raise UserError(
                f"context feature {shown(self._name)} has numbers whose squares are 0, such as "
                f"{values.max():g}; write them in another unit, or as logarithms"
            )
        different = len(np.unique(values))
        if different == len(values) and (values == np.floor(values)).all():
            identifiers.point_out(self._name, different, len(values))
        quantiles = np.unique(np.quantile(values, np.arange(1, BINS) / BINS))
        edges = tuple(float(edge) for edge in quantiles if edge > values.min())
        feature = Numerical(self._name, self._width, float(values.mean()), scale, edges)
        if len(np.unique(np.array(feature.standardised_edges, np.float32))) < len(edges):
            far = values[np.abs(values - np.median(values)).argmax()]
            warn(
                f"{feature.label}: {far:g} is so far from the other numbers that some of them "
                "cannot be told apart; leave it out where it stands for a missing number"
            )
        return feature
