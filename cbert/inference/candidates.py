"""The items that a query's answer may list.

Legend: V real items.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The items that may be listed; a `bool [V]` for each of many queries would fill memory.

    Attributes:
      only: `int32`, the codes of all of them; None for the whole vocabulary.
      left_out: `int32`, the codes of items that are not among them all the same.
      restricted: Whether the user has restricted them.
    """

    only: np.ndarray | None
    left_out: np.ndarray
    restricted: bool

    def mask(self, size: int) -> np.ndarray:
        """`bool [V]`, of a vocabulary of that size."""
        candidates = np.full(size, self.only is None)
        if self.only is not None:
            candidates[self.only] = True
        candidates[self.left_out] = False
        return candidates
