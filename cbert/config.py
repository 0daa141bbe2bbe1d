"""Config fields, each declared once: its default, its allowed values, and one line of meaning.

A section is a frozen dataclass whose fields are made by `field`. Functions take sections as a
mapping from dotted name (empty for the top level, `model`, `model.gsu`) to dataclass, and make
defaults, checks, the page of fields and the help of overrides from the declarations alone.
"""

import dataclasses
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import ml_collections
from flax import traverse_util

from cbert.errors import UserError, check_kind, did_you_mean, shown
from cbert.field_names import check_name

LARGEST_INTEGER = 2**31 - 1  # Steps and sizes are int32 on the devices.

Sections = Mapping[str, type]
Choices = Sequence[str] | Callable[[], Sequence[str]]
T = TypeVar("T")

_KIND_NAMES = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


class ImpossibleValueError(UserError):
    """A value that the field `name` cannot have; `may_be_own` if a user's file can add it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.may_be_own = name in ("model.method", "task.name")


@dataclasses.dataclass(frozen=True)
class Declaration:
    """The declaration of a field.

    Attributes:
      kind: Its type: `int`, `float`, `str` or `bool`.
      default: Its default.
      meaning: One line, without a full stop.
      at_least, above, at_most, below: Bounds of a number, None where there is none.
      choices: The strings it may be, or a function that returns them; None for any string.
      changes_results: Whether a run with another value is another experiment.
    """

    kind: type
    default: Any
    meaning: str
    at_least: float | None
    above: float | None
    at_most: float | None
    below: float | None
    choices: Choices | None
    changes_results: bool

    def allowed(self) -> str:
        """The allowed values in words, such as `at least 1`, or else the kind."""
        if self.choices is not None:
            return "one of " + ", ".join(self.choice_names())
        return self._bounds() or _KIND_NAMES[self.kind]

    def _bounds(self) -> str:
        bounds = {"at least": self.at_least, "above": self.above}
        bounds |= {"at most": self.at_most, "below": self.below}
        return " and ".join(f"{word} {n}" for word, n in bounds.items() if n is not None)

    def default_text(self) -> str:
        """The default as it is written on a command line."""
        return str(self.default).lower() if self.kind is bool else str(self.default)

    def choice_names(self) -> Sequence[str]:
        return (self.choices() if callable(self.choices) else self.choices) or ()

    def complaint(self, value: Any) -> str | None:
        """The rule that a value breaks, in words; None where it is allowed."""
        accepted: Any = (int, float) if self.kind is float else self.kind
        is_bool = isinstance(value, bool)
        if not isinstance(value, accepted) or (is_bool and self.kind is not bool):
            return _KIND_NAMES[self.kind]
        if self.kind is int and self.at_most is None and value > LARGEST_INTEGER:
            return f"at most {LARGEST_INTEGER}"
        if self._within(value):
            return None
        finite = self.kind is not float or abs(value) <= sys.float_info.max
        return self.allowed() if finite else f"a finite number {self._bounds()}".rstrip()

    def _within(self, value: Any) -> bool:
        if self.choices is not None:
            return value in self.choice_names()
        return not isinstance(value, float | int) or (
            abs(value) <= sys.float_info.max  # This is false for nan, too.
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )


def field(
    default: T,
    meaning: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Choices | None = None,
    changes_results: bool = True,
) -> T:
    """A field of a section; the arguments are those of `Declaration`.

    A whole number without an upper bound may be `LARGEST_INTEGER` at most.
    """
    declared = {
        "meaning": meaning,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "below": below,
        "choices": choices,
        "changes_results": changes_results,
    }
    return dataclasses.field(default=default, metadata=declared)


@functools.cache
def section_fields(section: type) -> dict[str, Declaration]:
    """The declared fields of one section by name.

    Raises:
      UserError: the class is no section, as one of a user's own method may be; it names the
        class or the field.
    """
    kinds = typing.get_type_hints(section)
    _check_section(section, kinds)
    declared = {}
    for own in dataclasses.fields(section):
        kind, given = kinds[own.name], own.default
        # A ConfigDict takes values of the default's type, and 1 may be written for 1.0.
        default = float(given) if kind is float and type(given) is int else given
        declared[own.name] = Declaration(kind, default, **own.metadata)
        if complaint := declared[own.name].complaint(default):
            raise UserError(
                f"the config section {section.__qualname__} gives {own.name} the default "
                f"{shown(default)}; it must be {complaint}"
            )
    return declared


def _check_section(section: type, kinds: Mapping[str, Any]) -> None:
    """Refuses a class that is no frozen dataclass, or has a field that `field` did not make."""
    name = section.__qualname__
    # A class that inherits from a section without being decorated would lose its own fields.
    made = vars(section).get("__dataclass_params__")
    if made is None or not made.frozen:
        raise UserError(
            f"the config section {name} is not a frozen dataclass; write "
            "@dataclasses.dataclass(frozen=True) above the class"
        )
    for own in dataclasses.fields(section):
        if "meaning" not in own.metadata:
            raise UserError(
                f"the config section {name} gives {own.name} no meaning; write "
                f"{own.name}: TYPE = cbert.config.field(DEFAULT, MEANING)"
            )
        if kinds[own.name] not in _KIND_NAMES:
            raise UserError(
                f"the config section {name} declares {own.name} as {shown(kinds[own.name])}; "
                f"use one of {', '.join(kind.__name__ for kind in _KIND_NAMES)}"
            )


def declarations(sections: Sections) -> dict[str, Declaration]:
    """The declared fields of all sections by dotted name."""
    return {
        f"{prefix}.{name}" if prefix else name: declaration
        for prefix, section in sections.items()
        for name, declaration in section_fields(section).items()
    }


def default(sections: Sections) -> ml_collections.ConfigDict:
    """A config of every field's default, not locked."""
    values = {name: field.default for name, field in declarations(sections).items()}
    return ml_collections.ConfigDict(traverse_util.unflatten_dict(values, sep="."))


def check(config: ml_collections.ConfigDict, sections: Sections) -> None:
    """Refuses unknown and missing fields and impossible values.

    Raises:
      UserError: a field is unknown or missing; it names it.
      ImpossibleValueError: it names the field, its value and what the value must be.
    """
    check_kind("config", config, ml_collections.ConfigDict, "what read_config returns")
    check_names(config, sections)
    values = flat(config.to_dict())
    for name, declaration in declarations(sections).items():
        check_value(name, declaration, values[name])


def check_value(name: str, declaration: Declaration, value: Any) -> None:
    """Raises `ImpossibleValueError` for what the field of that name cannot have."""
    if complaint := declaration.complaint(value):
        hint = did_you_mean(value, declaration.choice_names())
        message = f"{name} is {shown(value)}; {hint} must be {complaint}"
        raise ImpossibleValueError(name, message)


def check_names(config: ml_collections.ConfigDict, sections: Sections) -> None:
    """Refuses unknown and missing fields; raises `UserError`."""
    names, values = declarations(sections), flat(config.to_dict())
    for name in values:
        check_name(name, names)
    for name in names:
        if name not in values:
            raise UserError(
                f"{name} is missing; begin a config with base.get_config of configs/base.py"
            )


def read(config: ml_collections.ConfigDict, name: str, section: type[T]) -> T:
    """A section's values out of a checked config; `name` is the section's dotted name."""
    for part in name.split("."):
        config = config[part]
    names = section_fields(section)  # type: ignore[arg-type] # A class is hashable.
    return section(**{name: config[name] for name in names})


def flat(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Nested sections as dotted name to value."""
    return traverse_util.flatten_dict(nested, sep=".")


def reference(sections: Sections) -> str:
    """Markdown: for each section its docstring and a table of its fields."""
    head = "| field | default | allowed | meaning |\n| --- | --- | --- | --- |"
    parts = []
    for prefix, section in sections.items():
        rows = [
            (name, declared.default_text() or '""', declared.allowed(), declared.meaning)
            for name, declared in declarations({prefix: section}).items()
        ]
        title = f"## `{prefix}`" if prefix else "## Top level"
        text = "\n".join("| `{}` | `{}` | {} | {} |".format(*row) for row in rows)
        parts.append(f"{title}\n\n{inspect.getdoc(section)}\n\n{head}\n{text}\n")
    return "\n".join(parts)


def overrides_help(sections: Sections, flag: str) -> str:
    """A line for each field: the flag that overrides it, its allowed values and its meaning."""
    lines = (
        f"--{flag}.{name}={declared.default_text()}: {declared.meaning}; {declared.allowed()}"
        for name, declared in declarations(sections).items()
    )
    # A terminal follows no links, so that only their texts stay.
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", "\n".join(lines))
