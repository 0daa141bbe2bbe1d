"""Classes by name, to which anybody may add their own."""

import re
from collections import UserDict
from collections.abc import Collection
from typing import Any, Self, TypeVar

from cbert.errors import UserError, shown

T = TypeVar("T")


class Registry(UserDict[str, type[T]]):
    """Classes by name, a dict that refuses what is no such class, and a name that is taken.

    A run's checkpoint knows its method and its task by name alone. A class may be registered
    again, because a file may be imported twice, and a notebook's cell be run twice.
    """

    def __init__(
        self, kind: str, base: Any, classes: dict[str, type[T]], fields: Collection[str]
    ) -> None:
        """Registers the first classes.

        Args:
          kind: What they are, as errors say it, such as `method`.
          base: The class that they extend, which may be abstract.
          classes: Name to class.
          fields: The config fields beside which a class has a section of its name.
        """
        self._kind, self._base, self._fields = kind, base, fields
        super().__init__(classes)

    def __setitem__(self, name: str, value: type[T]) -> None:
        if name not in self.data:
            self._check_name(name)
        if not (isinstance(value, type) and issubclass(value, self._base)):
            base = self._base.__name__
            raise UserError(
                f"the {self._kind} {name!r} is {shown(value)}; give a subclass of {base}"
            )
        known = self.get(name)
        if known is not None and _identity(known) != _identity(value):
            whose = "of cbert" if is_ours(known) else f"already, {known.__qualname__}"
            raise UserError(f"{name!r} is a {self._kind} {whose}; take another name")
        super().__setitem__(name, value)

    def _check_name(self, name: Any) -> None:
        """Refuses a name that cannot be part of dotted fields, lists with commas and paths."""
        if not (isinstance(name, str) and re.fullmatch(r"[\w-]+", name)):
            raise UserError(
                f"a {self._kind} is called {shown(name)}; use letters, digits, _ and - alone"
            )
        if name in self._fields:
            raise UserError(
                f"the {self._kind} {name!r} has the name of a config field beside its section; "
                "take another name"
            )

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc, override]
        self.update(other)  # That of UserDict does not come past `__setitem__`.
        return self


def is_ours(value: type) -> bool:
    """Whether a class comes with cbert."""
    return value.__module__.split(".")[0] == "cbert"


def _identity(value: type) -> tuple[str, str]:
    """What tells classes apart; a user's file is a module of several names, as `__main__`."""
    return value.__qualname__, value.__module__ if is_ours(value) else ""
