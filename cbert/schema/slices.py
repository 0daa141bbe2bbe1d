"""Slices of examples by a feature's values, for evaluation.

Legend: M examples.
"""

from collections.abc import Sequence

import numpy as np

RANGES = 4


def by_value(lists: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Each string to `bool [M]`, whether an example's list holds it."""
    sets = [set(values) for values in lists]
    every = sorted(set().union(*sets))
    return {value: np.array([value in one for one in sets]) for value in every}


def by_range(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """At most `RANGES` ranges of about equally many examples; NaN is in none.

    Args:
      numbers: `float64 [M]`.
    """
    if np.isnan(numbers).all():
        return {}
    edges = np.unique(np.nanquantile(numbers, np.arange(1, RANGES) / RANGES))
    least = np.nanmin(numbers)
    above = numbers[numbers > least]
    if edges[0] == least and above.size:  # A frequent least value is a range of its own.
        edges = np.unique([above.min(), *edges[1:]])
    index = np.searchsorted(edges, numbers, side="right")
    index[np.isnan(numbers)] = -1
    slices = {}
    for part in range(len(edges) + 1):
        inside = index == part
        if inside.any():
            low, high = numbers[inside].min(), numbers[inside].max()
            slices[f"{low:g} to {high:g}" if low < high else f"{low:g}"] = inside
    return slices
