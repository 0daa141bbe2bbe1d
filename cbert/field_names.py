"""Dotted names of config fields: the one that was meant, and the shortest that tells."""

import collections
import difflib
import re
from collections.abc import Collection, Iterable

from cbert.errors import UserError


def check_name(name: str, names: Collection[str]) -> None:
    """Refuses a field that is not among the names; the `UserError` offers the nearest."""
    inside = [field for field in names if field.startswith(f"{name}.")]
    if inside:
        raise UserError(
            f"{name} is a section; give it a mapping, or name one of its fields, such as "
            f"{inside[0]}"
        )
    if name not in names:
        near = nearest_field(name, names)
        raise UserError(f"there is no field {name[:80]!r}; did you mean {near}?")


def nearest_field(name: str, names: Collection[str]) -> str:
    """The field most like the given one: by its last name or initials, or else by letters.

    Where two or three sections have one of that last name, all are named.
    """
    last = name.rpartition(".")[2]
    own = {field: field.rpartition(".")[2] for field in names}
    initials = {field: "".join(re.findall("(?:^|_)(.)", own[field])) for field in names}
    same = [field for field in names if last in (own[field], initials[field])]
    if len(same) in (2, 3):
        return " or ".join(same)
    within = [field for field in names if len(last) > 3 and last in own[field]]
    return nearest(name, same or within or names)


def nearest(name: str, names: Iterable[str]) -> str:
    """The name most like the given one."""
    return difflib.get_close_matches(name[:100], list(names), 1, 0.0)[0]


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A field's last name, unless another of the fields has it too."""
    last = {name: name.rpartition(".")[2] for name in names}
    counts = collections.Counter(last.values())
    return {name: short if counts[short] == 1 else name for name, short in last.items()}
