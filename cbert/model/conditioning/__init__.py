"""The conditioning methods: one file each, one line here."""

import dataclasses
from typing import Any

from cbert.errors import UserError
from cbert.model.conditioning.bidirectional_global_state import BidirectionalGlobalState
from cbert.model.conditioning.concat import Concat
from cbert.model.conditioning.deep_global_state import DeepGlobalState
from cbert.model.conditioning.global_state import GlobalState
from cbert.model.conditioning.global_state_update import GlobalStateUpdate
from cbert.model.conditioning.history import ReadHistory
from cbert.model.conditioning.method import Method
from cbert.model.conditioning.new_position import NewPosition
from cbert.model.conditioning.none import NoContext
from cbert.model.conditioning.user_concat import UserConcat

METHODS: dict[str, type[Method]] = {
    "none": NoContext,  # no context, plain BERT
    "c": Concat,  # the context concatenated to every position
    "np": NewPosition,  # the context as one more position
    "gs": GlobalState,  # a global state that every block reads
    "gsu": GlobalStateUpdate,  # the same, updated between blocks
    "gsu_bi": BidirectionalGlobalState,  # the same, updated from the sequence, too
    "gs_deep": DeepGlobalState,  # gsu's updates all before the first block: a control
    "user_concat": UserConcat,  # item and context side by side in every layer
    "history": ReadHistory,  # a transformer over histories and features, read by every block
}
NAMES = METHODS.keys()  # A view: a method that is added later is there, too.
# The methods that the paper compares, in its order; a sweep has these unless others are named.
PAPER = ("none", "c", "np", "gs", "gsu")
LONG_NAMES = {
    "concat": "c",
    "new_position": "np",
    "global_state": "gs",
    "global_state_update": "gsu",
}


def short_name(name: str) -> str:
    """The short name of a method, from either of its names; other names stay unchanged."""
    return LONG_NAMES.get(name, name)


def method_class(name: str) -> type[Method]:
    """The module of a method; raises `UserError` with the names there are."""
    try:
        return METHODS[short_name(name)]
    except KeyError:
        raise UserError(
            f"model.method is {name!r}; it must be one of {', '.join(METHODS)}"
        ) from None


def config_sections() -> dict[str, type]:
    """The config section of each method that has one, by the method's name."""
    return {name: method.Config for name, method in METHODS.items() if method.Config}


def default_options(name: str, **choices: Any) -> Any:
    """The method's own options, its defaults but for the choices given; None if it has none."""
    section = method_class(name).Config
    return dataclasses.replace(section(), **choices) if section else None
