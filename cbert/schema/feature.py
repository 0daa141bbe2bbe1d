"""The interface of every kind of context feature; each kind is a subclass in its own file.

Legend: M examples, K entries of a coded row.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, Self, TypeVar, cast

import numpy as np

from cbert.errors import UserError, shown
from cbert.schema.values import check_room, check_size

V = TypeVar("V")
V_contra = TypeVar("V_contra", contravariant=True)


class Accumulator(Protocol[V_contra]):
    """Infers a feature from the values of the training split, one after the other."""

    def observe(self, value: V_contra) -> None:
        """Takes the value of one training example in which it is not missing."""

    def finish(self) -> "Feature":
        """The feature; raises `UserError` where no model could be trained with it."""


@dataclasses.dataclass(frozen=True)
class Feature(abc.ABC, Generic[V]):
    """One feature of the context, whose values are of type V.

    The class methods look at values before a feature is inferred from them; the other methods
    belong to one feature of a schema.

    Attributes:
      name: Its key in a record's `context`.
      width: w, the entries of the context vector that its embedding fills.
    """

    kind: ClassVar[str]  # Its name in `schema.json`.
    wanted: ClassVar[str]  # What its values are in a record.
    named_only: ClassVar[bool] = False  # Only the user can choose this kind.
    same_length: ClassVar[bool] = False  # All its values have equally many entries.
    discrete: ClassVar[bool] = True  # Evaluation can slice by it, and baselines can count it.

    name: str
    width: int

    @classmethod
    @abc.abstractmethod
    def holds(cls, value: object) -> bool:
        """Returns whether a raw value has the form of this kind."""

    @classmethod
    @abc.abstractmethod
    def check_raw(cls, name: str, value: V) -> None:
        """Raises `UserError` where a value of the right form holds an impossible part."""

    @classmethod
    def entries_of(cls, value: V) -> int:
        """The number of strings or numbers in a value."""
        return 1

    @classmethod
    @abc.abstractmethod
    def accumulator(cls, name: str, width: int | None, min_count: int) -> Accumulator[V]:
        """The accumulator that infers such a feature.

        Args:
          name: The feature's name.
          width: Its width, None for the kind's default.
          min_count: Strings that occur less often become unknown.
        """

    @property
    def entries(self) -> int:
        """The most strings or numbers that a value has."""
        return 1

    def with_entries(self, entries: int) -> Self:
        """The same feature for values of at most so many strings, at least one."""
        return self

    @property
    def value_count(self) -> int:
        """The number of its known values; the length of a value where these are not listed."""
        return self.entries

    def check(self) -> None:
        """Raises `UserError` naming the field with which no model can be trained."""
        check_size(f"{self.label}: width", self.width)

    @property
    def label(self) -> str:
        """The name of the feature in errors."""
        return f"feature {shown(self.name)}"

    @property
    def described(self) -> str:
        """What a value is, in errors."""
        return self.kind

    def accepts(self, value: object) -> bool:
        """Returns whether a value that is not None can be encoded."""
        return self.holds(value)

    def check_kind(self, value: object) -> None:
        """Raises `UserError` where a value that is not None is not of the feature's kind."""
        if not self.accepts(value):
            raise UserError(
                f"context feature {self.name!r} is {self.described}, not "
                f"{shown(value, 80)}; give {self.wanted}"
            )

    def check_room(self, examples: int) -> None:
        """Raises `UserError` where the column of so many examples is too large."""
        check_room(examples, self.entries, f"values of {self.name!r}")

    def encode(self, column: Sequence[object], items: Mapping[str, int]) -> np.ndarray:
        """Codes a column.

        Args:
          column: `[M]` values, None where missing.
          items: The vocabulary's item names and their codes, for kinds that hold items.

        Returns:
          `[M, K]`, `int32` or `float32` by kind, as the kind's class says.

        Raises:
          UserError: a value is not of the feature's kind, or the column is too large.
        """
        for value in column:
            if value is not None:
                self.check_kind(value)
        self.check_room(len(column))
        return self._encode(cast(Sequence[V | None], column), items)

    @abc.abstractmethod
    def _encode(self, column: Sequence[V | None], items: Mapping[str, int]) -> np.ndarray:
        """Codes values that have all been accepted."""

    @abc.abstractmethod
    def missing(self, rows: int = 1) -> np.ndarray:
        """Coded rows `[rows, K]` in which the feature is missing."""

    def dropped(self) -> np.ndarray:
        """Coded rows `[R, K]`, one of which context dropout shows instead of a value."""
        return self.missing()

    def validate(self, value: V, items: Mapping[str, int]) -> list[str]:
        """Checks a user's value; returns the strings in it that training never saw.

        Raises:
          UserError: the value is not of the kind, or has more entries than the model takes.
        """
        self.encode([value], items)
        return []

    def unknown(self, strings: Iterable[str], items: Mapping[str, int]) -> list[str]:
        """The strings that training never saw, each once; `items` as in `encode`."""
        return []

    def slices(self, column: Sequence[V | None]) -> dict[str, np.ndarray]:
        """Label to `bool [M]`, the parts by which evaluation reports; only if `discrete`."""
        raise NotImplementedError(f"{self.kind} is not discrete")

    def levels(self, coded: np.ndarray, most: int) -> tuple[np.ndarray, int]:
        """The levels that a baseline counts; only if `discrete`.

        Args:
          coded: `[M, K]`, from `encode`.
          most: The most values to count; rarer ones count as none.

        Returns:
          The values that examples show, `int [M, n]` from 1, 0 for none, and their number.
        """
        raise NotImplementedError(f"{self.kind} is not discrete")

    def any_known(self, coded: np.ndarray) -> bool:
        """Whether any of the rows `[M, K]` of `encode` has a value that training saw."""
        return True

    @abc.abstractmethod
    def form(self) -> dict[str, object]:
        """Its input in a form, as JSON: `control` and the fields that the control needs."""

    def example(self) -> V | None:
        """A typical value, None where the kind has none."""
        return None
