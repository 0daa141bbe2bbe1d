"""What an example is made of: the item vocabulary and the context's features.

Items are coded from 0 in the order of the vocabulary, so that a code is a row of the
embedding table; what is not a real item is coded below zero and can never be a candidate.
Values of categorical and multi-valued features are coded from 3, after the three codes that
every such feature has.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from cbert.errors import UserError, shown

PAD_ITEM, UNKNOWN_ITEM, MASK_ITEM = -1, -2, -3
PAD_VALUE, MISSING_VALUE, UNKNOWN_VALUE = 0, 1, 2
SPECIAL_VALUES = 3

SET, SEQUENCE = "set", "sequence"
CATEGORICAL, MULTI_VALUED = "categorical", "multi_valued"
NUMERICAL, VECTOR = "numerical", "vector"
KINDS = (CATEGORICAL, MULTI_VALUED, NUMERICAL, VECTOR)

LARGEST = 1e30  # Of a number; what float32 still holds.
FARTHEST = 1e12  # From the mean, in deviations; a model may square it and sum in float32.
_MOST_CODES = 2**31  # 8 GiB of a split's codes.


def is_finite(value: Any) -> bool:
    """Whether it is a number, neither a boolean nor as large as `LARGEST`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -LARGEST < value < LARGEST


def _check_room(examples: int, longest: int, what: str) -> None:
    """Refuses, before memory runs out, a column that one long example makes huge."""
    if examples * longest > _MOST_CODES:
        raise UserError(
            f"an example may have {longest} {what}, {examples} examples do not fit memory at "
            "that length; leave the longest out (items: --max_items) or edit the schema"
        )


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of the context.

    Attributes:
      name: Its key in a record's `context`.
      kind: One of `KINDS`.
      width: Entries of the context vector that its embedding fills.
      values: Known values of a categorical or multi-valued feature, most frequent first.
      max_values: The most values that a multi-valued feature takes at once.
      mean: Mean of a numerical feature over the training split.
      scale: Its standard deviation, 1 where that is zero.
      edges: Increasing inner edges of its bins, quantiles of the training split.
      dimension: Length of a vector.
    """

    name: str
    kind: str
    width: int
    values: tuple[str, ...] = ()
    max_values: int = 1
    mean: float = 0.0
    scale: float = 1.0
    edges: tuple[float, ...] = ()
    dimension: int = 0

    @functools.cached_property
    def codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values, SPECIAL_VALUES)}

    @property
    def is_token(self) -> bool:
        """Whether its values are looked up in a table, rather than computed with."""
        return self.kind in (CATEGORICAL, MULTI_VALUED)

    @property
    def numbers(self) -> int:
        """How many numbers a value has: its dimension, 1 for a numerical feature."""
        return self.dimension if self.kind == VECTOR else 1

    def check_room(self, examples: int) -> None:
        """Raises `UserError` where the column of so many examples is too large."""
        if self.is_token:
            _check_room(examples, self.max_values, f"values of {self.name!r}")
        else:
            _check_room(examples, self.numbers, f"numbers of {self.name!r}")

    def encode(self, column: list[Any]) -> np.ndarray:
        """Codes a column of M values, None where missing.

        Returns:
          Codes `int32 [M, max_values]`, or `float32 [M, 1 + numbers]`: whether it was
          observed, then the standardised numbers, 0 where missing.

        Raises:
          UserError: a value is not of the feature's kind, or unthinkably far from the mean.
        """
        for value in column:
            if not self._accepts(value):
                raise UserError(
                    f"context feature {self.name!r} is {self.kind}, not {shown(value, 80)}"
                )
        return self._encode_tokens(column) if self.is_token else self._encode_numbers(column)

    def _accepts(self, value: Any) -> bool:
        if value is None:
            return True
        if self.kind == CATEGORICAL:
            return isinstance(value, str)
        if self.kind == NUMERICAL:
            return is_finite(value)
        if not isinstance(value, list):
            return False
        if self.kind == MULTI_VALUED:
            return all(isinstance(v, str) for v in value)
        return len(value) == self.dimension and all(map(is_finite, value))

    def _encode_tokens(self, column: list[Any]) -> np.ndarray:
        self.check_room(len(column))
        rows = np.full((len(column), self.max_values), PAD_VALUE, np.int32)
        if self.kind == CATEGORICAL:
            get = self.codes.get
            rows[:, 0] = [
                MISSING_VALUE if value is None else get(value, UNKNOWN_VALUE)
                for value in column
            ]
            return rows
        for row, values in zip(rows, column, strict=True):
            if values is None:
                row[0] = MISSING_VALUE
            else:
                codes = dict.fromkeys(self.codes.get(v, UNKNOWN_VALUE) for v in values)
                codes = list(codes)[: self.max_values]
                row[: len(codes)] = codes
        return rows

    def _encode_numbers(self, column: list[Any]) -> np.ndarray:
        self.check_room(len(column))
        rows = np.zeros((len(column), 1 + self.numbers), np.float32)
        observed = np.array([value is not None for value in column], bool)
        rows[:, 0] = observed
        values = np.array([v for v in column if v is not None], np.float64)
        values = values.reshape(-1, self.numbers)
        with np.errstate(over="ignore"):
            standardised = (values - self.mean) / self.scale
        far = np.abs(standardised) > FARTHEST
        if far.any():
            raise UserError(
                f"context feature {shown(self.name)} is {values[far][0]:g}, too large; check "
                "its unit"
            )
        rows[observed, 1:] = standardised
        return rows


@dataclasses.dataclass(frozen=True)
class Schema:
    """The vocabulary and the features of a data set; travels with data and checkpoints.

    Attributes:
      kind: `set` (no order, no repeats) or `sequence`.
      max_items: The most items that an example holds.
      items: Names of the real items; an item's code is its place here.
      counts: How often each occurs in the training split.
      features: The context's features, in the order of the context vector.
    """

    kind: str
    max_items: int
    items: tuple[str, ...]
    counts: tuple[int, ...]
    features: tuple[Feature, ...]

    @functools.cached_property
    def codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.items)}

    @property
    def context_width(self) -> int:
        """C, the length of the context vector."""
        return sum(feature.width for feature in self.features)

    def feature(self, name: str) -> Feature:
        """The feature of that name; raises `UserError` with the names there are."""
        for feature in self.features:
            if feature.name == name:
                return feature
        known = ", ".join(f.name for f in self.features) or "none"
        raise UserError(f"context feature {name!r} does not exist; the features are: {known}")

    def check_room(self, examples: int) -> None:
        """Raises `UserError` where a column of so many examples is too large."""
        _check_room(examples, self.max_items, "items")
        for feature in self.features:
            feature.check_room(examples)

    def encode_items(self, column: list[list[str]]) -> np.ndarray:
        """Codes `int32 [M, max_items]`; raises `UserError` when a row has more items."""
        _check_room(len(column), self.max_items, "items")
        rows = np.full((len(column), self.max_items), PAD_ITEM, np.int32)
        get = self.codes.get
        for row, items in zip(rows, column, strict=True):
            if len(items) > self.max_items:
                raise UserError(
                    f"an example has {len(items)} items where the schema's max_items is "
                    f"{self.max_items}; prepare with --max_items={self.max_items} "
                    "--longer=subsample"
                )
            row[: len(items)] = [get(item, UNKNOWN_ITEM) for item in items]
        return rows
