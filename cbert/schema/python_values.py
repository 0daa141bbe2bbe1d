"""Values that a Python program holds, such as those of NumPy and pandas, as JSON has them."""

from typing import Any

import numpy as np

from cbert.errors import UserError, shown


def plain(value: Any) -> Any:
    """A value without NumPy's types; NaN, and what pandas has in its place, is None: missing.

    What is missing within a list stays, because a list has no missing values.
    """
    if _is_missing(value):
        return None
    value = _without_numpy(value)
    if not isinstance(value, list | tuple):
        return value
    kinds = {*map(type, value)}  # Fast for a catalogue's names, of which none is NumPy's.
    holds_numpy = any(issubclass(kind, np.ndarray | np.generic) for kind in kinds)
    return [*map(_without_numpy, value)] if holds_numpy else [*value]


def without_booleans(name: str, value: Any) -> Any:
    """A feature's value with a boolean as a string; raises `UserError` for one in a list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and any(isinstance(v, bool) for v in value):
        raise UserError(f"context {name!r} is {shown(value)}; a list holds strings or numbers")
    return value


def _is_missing(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return type(value).__name__ in ("NAType", "NaTType")  # pandas need not be installed.


def _without_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        # Python has no nanoseconds: such times would become whole numbers.
        return value.astype(str).tolist() if value.dtype.kind in "mM" else value.tolist()
    return value
