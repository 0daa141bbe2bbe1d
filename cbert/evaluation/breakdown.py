"""Slices of a split by the values of a context feature.

Legend: M examples.
"""

import json
from collections.abc import Sequence

import numpy as np

from cbert.errors import UserError
from cbert.schema import Feature

MISSING = "(missing)"


def check(feature: Feature) -> None:
    """Raises `UserError` for a feature, such as a vector, that has no values to list."""
    if not feature.discrete:
        raise UserError(f"{feature.name}: a {feature.kind} has no values to list; use another")


def by_feature(contexts: Sequence[str], feature: Feature) -> dict[str, np.ndarray]:
    """The examples in each slice of a feature, missing values in one: label to `bool [M]`.

    An example with several values is in the slice of each value.

    Args:
      contexts: `[M]`, as JSON text.
      feature: The feature to slice by; it must be discrete.
    """
    column = [json.loads(context).get(feature.name) for context in contexts]
    missing = np.array([value is None for value in column], bool)
    slices = feature.slices(column)
    return {**slices, MISSING: missing} if missing.any() else slices
