"""Progress bars: for people at a terminal or in a notebook, after two seconds."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm


def bar(iterable: Iterable | None = None, **options: Any) -> tqdm:
    """A bar that a file or a pipe never sees."""
    # A notebook's output is no terminal, and tqdm would take it for a file.
    disable = False if in_notebook() else None
    return tqdm(iterable, **{"delay": 2, "disable": disable, **options})


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config
