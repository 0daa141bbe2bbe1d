"""Slices of examples by a feature's values, for evaluation.

Legend: M examples.
"""

from collections.abc import Sequence

import numpy as np

from cbert.errors import UserError

RANGES = 4
MOST_VALUES = 1000  # Each value's slice is an array as long as the split.


def by_value(lists: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Each string to `bool [M]`, whether an example's list holds it.

    Raises:
      UserError: there are more than `MOST_VALUES` of them.
    """
    rows: dict[str, list[int]] = {}
    for row, values in enumerate(lists):
        for value in values:
            rows.setdefault(value, []).append(row)
    if len(rows) > MOST_VALUES:
        raise UserError(
            f"{len(rows):,} values in these examples, and slices are for at most "
            f"{MOST_VALUES:,}; use another feature"
        )
    slices = {value: np.zeros(len(lists), bool) for value in sorted(rows)}
    for value, inside in slices.items():
        inside[rows[value]] = True
    return slices


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
    parts = [index == part for part in range(len(edges) + 1)]
    parts = [inside for inside in parts if inside.any()]
    labels = _labels([(numbers[inside].min(), numbers[inside].max()) for inside in parts])
    return dict(zip(labels, parts, strict=True))


def _labels(bounds: Sequence[tuple[float, float]]) -> list[str]:
    """Ranges as text, with as few digits as tell all bounds apart."""
    numbers = sorted({bound for both in bounds for bound in both})
    for digits in range(6, 18):  # 17 tell any two numbers of float64 apart.
        texts = {number: _plain(number, digits) for number in numbers}
        if len(set(texts.values())) == len(numbers):
            break
    return [texts[a] if a == b else f"{texts[a]} to {texts[b]}" for a, b in bounds]


def _plain(number: float, digits: int) -> str:
    """A number with so many digits; a whole one of ordinary size has all of its own."""
    if number == int(number) and abs(number) < 1e15:
        return str(int(number))
    return f"{number:.{digits}g}"
