"""Contextual BERT: completing sets and sequences, conditioned on a context.

`docs/library.md` shows the names below in use; all other modules are private. What a name needs
is imported when it is first used, so that `import cbert` itself takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cbert.api import PreparedData, TrainingResult, prepare, read_config, train
    from cbert.data.prepare_options import PrepareOptions, TextOptions
    from cbert.errors import UserError
    from cbert.experiment import Experiment, build
    from cbert.inference.load import load
    from cbert.inference.stablehlo import load_exported
    from cbert.results import EvaluationResult, compare, evaluate
    from cbert.training.callbacks import Callbacks, Event

__version__ = "0.2.0"

# Public name to its module.
_HOMES = {
    "Callbacks": "cbert.training.callbacks",
    "EvaluationResult": "cbert.results",
    "Event": "cbert.training.callbacks",
    "Experiment": "cbert.experiment",
    "PrepareOptions": "cbert.data.prepare_options",
    "PreparedData": "cbert.api",
    "TextOptions": "cbert.data.prepare_options",
    "TrainingResult": "cbert.api",
    "UserError": "cbert.errors",
    "build": "cbert.experiment",
    "compare": "cbert.results",
    "evaluate": "cbert.results",
    "load": "cbert.inference.load",
    "load_exported": "cbert.inference.stablehlo",
    "prepare": "cbert.api",
    "read_config": "cbert.api",
    "train": "cbert.api",
}
__all__ = [
    "Callbacks",
    "EvaluationResult",
    "Event",
    "Experiment",
    "PrepareOptions",
    "PreparedData",
    "TextOptions",
    "TrainingResult",
    "UserError",
    "build",
    "compare",
    "evaluate",
    "load",
    "load_exported",
    "prepare",
    "read_config",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
