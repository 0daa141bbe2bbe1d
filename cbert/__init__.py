"""Contextual BERT: completing sets and sequences, conditioned on a context.

`cbert.load` and `cbert.load_exported` give a predictor; what they need is imported then.
"""

import importlib
from typing import Any

_HOMES = {"load": "cbert.inference.load", "load_exported": "cbert.inference.stablehlo"}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
