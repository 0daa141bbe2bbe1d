"""A user's mistake as one line, and safe ways to show text from outside on a terminal."""

import reprlib
import sys
from typing import Any

_LONGEST, _START, _END = 480, 300, 170

_REPR = reprlib.Repr()
_REPR.maxlevel = 3
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 56


class UserError(Exception):
    """A user's mistake: one line that names the location, the value and the fix.

    The message becomes one printable line of at most 480 characters, whatever it quotes.
    """

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


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


def warn(message: object) -> None:
    """Prints one line to stderr."""
    print(f"warning: {one_line(message)}", file=sys.stderr, flush=True)
