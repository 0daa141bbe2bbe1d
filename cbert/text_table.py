"""A table as lines of text, and the numbers in it."""

import math
from collections.abc import Iterable

from cbert.errors import printable


def align(rows: list[list[str]]) -> str:
    """Rows of cells as printable columns: the first to the left, the others to the right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def numbers(values: Iterable[float], digits: int = 4, sign: str = "") -> list[str]:
    """Numbers that stand together, with as many digits after the point for all.

    Those of four digits and more before it have fewer after it, the more the larger.

    Args:
      values: The numbers.
      digits: How many digits numbers below 1 000 have after the point.
      sign: `+` to write the sign of positive numbers, too.
    """
    values = list(values)
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest >= 1000:
        digits = max(digits + 1 - int(math.log10(largest)), 0)
    return [f"{value:{sign}z,.{digits}f}" for value in values]  # z: no -0.0000.
