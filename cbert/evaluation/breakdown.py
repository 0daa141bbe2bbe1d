"""Parts of a split: by number of visible items, and by the values of a context feature."""

import json

import numpy as np

from cbert.data.source import Split
from cbert.errors import UserError
from cbert.schema import NUMERICAL, VECTOR, Feature

MISSING = "(missing)"
RANGES = 4


def by_visible_items(split: Split) -> dict[str, np.ndarray]:
    """Label to `bool [M]`, for questions that hide one item."""
    visible = split.lengths - 1
    return {str(count): visible == count for count in sorted(set(visible.tolist()))}


def check(feature: Feature) -> None:
    """Raises `UserError` for a vector, which has no values to list."""
    if feature.kind == VECTOR:
        raise UserError(f"--by={feature.name}: a vector has no values to list")


def by_feature(contexts: list[str], feature: Feature) -> dict[str, np.ndarray]:
    """Label to `bool [M]`: each value, or four ranges of a number, and where it is missing.

    An example with several values is in the part of each.

    Args:
      contexts: `[M]`, as JSON text.
      feature: The feature that decides, no vector.
    """
    column = [json.loads(context).get(feature.name) for context in contexts]
    missing = np.array([value is None for value in column], bool)
    if feature.kind == NUMERICAL:
        parts = _ranges(np.array([np.nan if v is None else v for v in column], float))
    else:
        lists = [[v] if isinstance(v, str) else v or [] for v in column]
        values = sorted({value for found in lists for value in found})
        parts = {value: np.array([value in found for found in lists]) for value in values}
    return {**parts, MISSING: missing} if missing.any() else parts


def _ranges(numbers: np.ndarray) -> dict[str, np.ndarray]:
    if np.isnan(numbers).all():
        return {}
    edges = np.unique(np.nanquantile(numbers, np.arange(1, RANGES) / RANGES))
    least = np.nanmin(numbers)
    above = numbers[numbers > least]
    if edges[0] == least and above.size:  # A frequent least value is a range of its own.
        edges = np.unique([above.min(), *edges[1:]])
    place = np.searchsorted(edges, numbers, side="right")
    place[np.isnan(numbers)] = -1
    parts = {}
    for part in range(len(edges) + 1):
        inside = place == part
        if inside.any():
            low, high = numbers[inside].min(), numbers[inside].max()
            parts[f"{low:g} to {high:g}"] = inside
    return parts
