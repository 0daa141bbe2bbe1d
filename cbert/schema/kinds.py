"""The kinds of context features there are."""

from cbert.errors import UserError, shown
from cbert.schema.categorical import Categorical
from cbert.schema.feature import Feature
from cbert.schema.history import History
from cbert.schema.multi_valued import MultiValued
from cbert.schema.numerical import Numerical
from cbert.schema.vector import Vector

# The first kind that holds a value is the value's kind: an empty list is multi-valued.
KINDS: dict[str, type[Feature]] = {
    kind.kind: kind
    for kind in (
        Categorical,
        Numerical,
        MultiValued,
        Vector,
        History,
    )
}


def recognise(name: str, value: object) -> type[Feature]:
    """The kind of a raw value, unless the user says another; raises `UserError` for none."""
    for kind in KINDS.values():
        if not kind.named_only and kind.holds(value):
            kind.check_raw(name, value)
            return kind
    if isinstance(value, list) and None in value:
        raise UserError(
            f"context {name!r} is {shown(value)}; a list has no missing values, so leave them "
            "out, or the whole list where it is a vector"
        )
    if isinstance(value, list):
        raise UserError(
            f"context {name!r} is {shown(value)}; a list holds strings or numbers, not both"
        )
    raise UserError(
        f"context {name!r} is {shown(value)}; use a string, a number, a list of either, or null"
    )
