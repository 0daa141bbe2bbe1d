"""Checks of single values and sizes that every kind of feature shares."""

import math
from typing import Any

from cbert.errors import UserError, shown

PAD_ITEM, UNKNOWN_ITEM, MASK_ITEM = -1, -2, -3

LARGEST_NUMBER = 1e30  # A number beyond it may overflow float32.
FARTHEST = 1e12  # In deviations; a number farther from the mean is refused.
LARGEST_SIZE = 2**31 - 1  # A width, a length or a count beyond it fits no machine.
LONGEST_NAME = 10_000
_NO_UNICODE = "is not valid Unicode; leave out halves of characters, \\ud800 to \\udfff"
_MOST_CODES = 2**31  # A split's codes then take 8 GiB.


def is_finite(value: object) -> bool:
    """Returns whether it is a number, neither a boolean nor as large as `LARGEST_NUMBER`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST_NUMBER < value < LARGEST_NUMBER


def is_number(text: str) -> bool:
    """Whether a text is a finite number as Python writes it."""
    if "_" in text or not text.isascii():  # Python's float reads 1_2 as 12.
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def check_finite(name: str, value: object) -> None:
    """Raises `UserError` where a feature's number is not finite."""
    if not is_finite(value):
        raise UserError(
            f"context {name!r} is {shown(value)}; use a finite number, smaller than "
            f"{LARGEST_NUMBER:g} in size, or null"
        )


def check_near(what: str, value: float, mean: float, scale: float) -> None:
    """Raises `UserError` where a number is farther than `FARTHEST` from its mean."""
    if abs(value - mean) > FARTHEST * scale:
        raise UserError(
            f"{what} is {value:g}, too large beside the training examples' mean, {mean:g}, and "
            f"deviation, {scale:g}; check its unit"
        )


def check_text(text: str, what: str, longest: int = LONGEST_NAME) -> None:
    """Raises `UserError` where a text is too long or cannot be written as UTF-8."""
    if len(text) > longest:
        raise UserError(
            f"{what} {text[:40]!r}... has {len(text)} characters; give at most {longest}"
        )
    if not (text.isascii() or is_unicode(text)):  # Most texts are; there are many of them.
        raise UserError(f"{what} {shown(text)} {_NO_UNICODE}")


def is_unicode(text: str) -> bool:
    """Returns whether the text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_size(what: str, size: object, least: int = 1, most: int = LARGEST_SIZE) -> None:
    """Raises `UserError` where a size is not a whole number within bounds."""
    if type(size) is not int or not least <= size <= most:
        raise UserError(
            f"{what} is {shown(size)}; it must be a whole number from {least} to {most}"
        )


def check_counts(counts: tuple[object, ...], names: int, what: str) -> None:
    """Raises `UserError` where counts are not a whole number for each of so many names."""
    if len(counts) != names:
        raise UserError(
            f"{what} has {len(counts)} numbers for {names} names; give one number for each name"
        )
    a_number = f"a number in {what}"
    for count in counts:
        check_size(a_number, count, least=0)


def check_scale(where: str, mean: object, scale: Any) -> None:
    """Raises `UserError` where numbers cannot be standardised by a mean and a deviation."""
    if not (is_finite(mean) and is_finite(scale) and scale > 0):
        raise UserError(
            f"{where}mean is {shown(mean)} and scale is {shown(scale)}; both must be smaller "
            f"than {LARGEST_NUMBER:g} in size, and scale above zero"
        )


def check_names(names: tuple[object, ...], what: str) -> None:
    """Raises `UserError` where names are not different strings of valid Unicode."""
    seen = set()
    for name in names:
        if not isinstance(name, str):
            raise UserError(f"{what}: {shown(name)} is not a string")
        if not is_unicode(name):
            raise UserError(f"{what}: {shown(name)} {_NO_UNICODE}")
        if name in seen:
            raise UserError(f"{what}: {shown(name)} is listed twice")
        seen.add(name)


def check_room(examples: int, longest: int, what: str) -> None:
    """Refuses, before memory runs out, a column that one long example makes huge."""
    if examples * longest > _MOST_CODES:
        raise UserError(
            f"an example may have {longest} {what}, {examples} examples do not fit memory at "
            "that length; leave the longest out (of items give max_items=N), take fewer "
            "examples, or edit the schema"
        )
