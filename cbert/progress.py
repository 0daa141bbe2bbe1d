"""Progress bars: for people at a terminal, after two seconds."""

from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def bar(iterable: Iterable | None = None, **options: Any) -> tqdm:
    """A bar that a file or a pipe never sees."""
    return tqdm(iterable, **{"delay": 2, "disable": None, **options})
