"""The kinds of context features there are."""

from collections.abc import Mapping

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
    if isinstance(value, Mapping) and value:
        raise UserError(
            f"context {name!r} is {shown(value)}; a value holds no others, so flatten it: "
            f"write {_flat(name, value)}"
        )
    if isinstance(value, list) and None in value:
        raise UserError(
            f"context {name!r} is {shown(value)}; a list has no missing values, so leave them "
            "out, or the whole list where it is a vector"
        )
    if isinstance(value, list):
        raise UserError(
            f"context {name!r} is {shown(value)}; a list holds strings or numbers, not both, "
            "and no lists"
        )
    raise UserError(
        f"context {name!r} is {shown(value)}; use a string, a number, a list of either, or null"
    )


def _flat(name: str, value: object) -> str:
    """A nested value's first entry as a feature of its own, such as `"customer_age": 3`."""
    for _ in range(4):  # A mapping of Python's may hold itself.
        if isinstance(value, Mapping) and value:
            key, value = next(iter(value.items()))
            name = f"{name}_{str(key)[:40]}"
    return f'"{name}": {shown(value)}'
