"""A user's mistake as one line, and safe ways to show text from outside on a terminal."""

import difflib
import os
import reprlib
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_LONGEST, _START, _END = 480, 300, 170

_MOST_BITS = 10_000  # Python refuses to write numbers of more than some 14 000.


# How a message advises to give an option: a verb, the option, and `=`.
ADVICE = r"\b(give|set|use|or|with) (\w+(?:\.\w+)*)="
# How a warning is worded in the end: a command has flags where the library has arguments.
reword: Callable[[str], str] = str


class _Repr(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > _MOST_BITS:
            return f"a number of {x.bit_length()} bits"
        return super().repr_int(x, level)


_REPR = _Repr()
_REPR.maxlevel = 3
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 56


class UserError(Exception):
    """A user's mistake: one line that names the location, the value and the fix.

    The message becomes one printable line of at most 480 characters, whatever it quotes.
    """

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


def missing_extra(what: str, extra: str, error: object) -> UserError:
    """The error where a library of one of the project's optional extras is not installed."""
    return UserError(
        f'{what} needs the optional extra {extra} ({error}); run pip install ".[{extra}]"'
    )


def one_line(message: object) -> str:
    """A message as one printable line; a long one loses its middle."""
    line = printable(" ".join(str(message).split()))
    return line if len(line) <= _LONGEST else f"{line[:_START]} ... {line[-_END:]}"


def printable(text: str) -> str:
    """Escapes control characters and all else that a terminal might obey, as in `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shown(value: Any, most: int = 60) -> str:
    """A value as Python writes it, cut to a length: quick and safe for any size or depth."""
    return _REPR.repr(value)[:most]


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """How a sentence begins that says what a value must be: `did you mean x? It`, or `it`."""
    near = difflib.get_close_matches(shown(value, 100).strip("'"), list(choices), 1)
    return f"did you mean {near[0]}? It" if near else "it"


def check_choice(what: str, value: object, choices: Sequence[str]) -> None:
    """Raises `UserError` for an option that is not one of its choices."""
    if not isinstance(value, str) or value not in choices:
        raise UserError(f"{what} is {shown(value)}; it must be one of {', '.join(choices)}")


def check_kind(what: str, value: object, kind: type | types.UnionType, wanted: str) -> None:
    """Raises `UserError` for a value of another type; `wanted` says what to give."""
    if not isinstance(value, kind):
        raise UserError(f"{what} is {shown(value)}; give {wanted}")


def check_path(what: str, value: object) -> None:
    """Raises `UserError` for what is no path."""
    check_kind(what, value, str | os.PathLike, "a path")


def warn(message: object) -> None:
    """Prints one line to stderr."""
    print(f"warning: {reword(one_line(message))}", file=sys.stderr, flush=True)
