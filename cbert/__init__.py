"""Contextual BERT: completing sets and sequences, conditioned on a context.

`docs/library.md` shows the names below in use; all other modules are private. What a name needs
is imported when it is first used, so that `import cbert` itself takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cbert.api import PreparedData, TrainingResult, prepare, read_config, train
    from cbert.data.prepare_options import Options as PrepareOptions
    from cbert.data.prepare_options import TextOptions
    from cbert.errors import UserError
    from cbert.experiment import Experiment, build
    from cbert.inference.load import load
    from cbert.inference.stablehlo import load_exported
    from cbert.results import EvaluationResult, compare, evaluate
    from cbert.training.callbacks import Callbacks, Event

__version__ = "0.2.0"

# Public name to its module and its name there.
_HOMES = {
    "Callbacks": ("cbert.training.callbacks", "Callbacks"),
    "EvaluationResult": ("cbert.results", "EvaluationResult"),
    "Event": ("cbert.training.callbacks", "Event"),
    "Experiment": ("cbert.experiment", "Experiment"),
    "PrepareOptions": ("cbert.data.prepare_options", "Options"),
    "PreparedData": ("cbert.api", "PreparedData"),
    "TextOptions": ("cbert.data.prepare_options", "TextOptions"),
    "TrainingResult": ("cbert.api", "TrainingResult"),
    "UserError": ("cbert.errors", "UserError"),
    "build": ("cbert.experiment", "build"),
    "compare": ("cbert.results", "compare"),
    "evaluate": ("cbert.results", "evaluate"),
    "load": ("cbert.inference.load", "load"),
    "load_exported": ("cbert.inference.stablehlo", "load_exported"),
    "prepare": ("cbert.api", "prepare"),
    "read_config": ("cbert.api", "read_config"),
    "train": ("cbert.api", "train"),
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
        module, attribute = _HOMES[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
