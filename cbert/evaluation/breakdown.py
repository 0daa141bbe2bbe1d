"""Slices of a split by the values of a context feature.

Legend: M examples.
"""

import json
from collections.abc import Sequence

import numpy as np

from cbert.errors import UserError
from cbert.schema import Feature

MISSING, EMPTY = "(missing)", "(empty)"


def check(feature: Feature) -> None:
    """Raises `UserError` for a feature, such as a vector, that has no values to list."""
    if not feature.discrete:
        raise UserError(f"{feature.name}: a {feature.kind} has no values to list; use another")


def by_feature(contexts: Sequence[str], feature: Feature) -> dict[str, np.ndarray]:
    """The examples in each slice of a feature: label to `bool [M]`.

    An example with several values is in the slice of each value. Missing values are a slice,
    and so are empty lists that no slice of the feature holds.

    Args:
      contexts: `[M]`, as JSON text.
      feature: The feature to slice by; it must be discrete.

    Raises:
      UserError: the feature has too many values in these examples.
    """
    column = [json.loads(context).get(feature.name) for context in contexts]
    try:
        slices = dict(feature.slices(column))
    except UserError as error:
        raise UserError(f"{feature.name}: {error}") from None
    held = np.zeros(len(column), bool)
    for inside in slices.values():
        held |= inside
    for label, absent in ((EMPTY, []), (MISSING, None)):
        rows = np.array([value == absent for value in column], bool) & ~held
        while label in slices:  # A value may be called so.
            label = f"({label})"
        if rows.any():
            slices[label] = rows
    return slices
