"""Progress bars: for people at a terminal or in a notebook, after two seconds."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm


def bar(iterable: Iterable | None = None, **options: Any) -> tqdm:
    """A bar that a file or a pipe never sees."""
    if in_notebook():
        # Its output is no terminal, and tqdm would take it for a file. A notebook that is run
        # without a page keeps every line that a bar writes.
        options = {"disable": False, "mininterval": 1, **options}
    return tqdm(iterable, **{"delay": 2, "disable": None, **options})


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config
