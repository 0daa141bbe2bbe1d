"""The conditioning methods: one file each, one line here."""

import dataclasses
from typing import Any

from cbert.config import section_fields
from cbert.errors import UserError, did_you_mean
from cbert.model.conditioning.adaln_zero import AdaptiveNorm
from cbert.model.conditioning.adaptation_gate import AdaptationGate
from cbert.model.conditioning.bidirectional_global_state import BidirectionalGlobalState
from cbert.model.conditioning.concat import Concat
from cbert.model.conditioning.cross_attention import CrossAttention
from cbert.model.conditioning.deep_global_state import DeepGlobalState
from cbert.model.conditioning.film import Film
from cbert.model.conditioning.global_state import GlobalState
from cbert.model.conditioning.global_state_update import GlobalStateUpdate
from cbert.model.conditioning.global_token import GlobalToken
from cbert.model.conditioning.history import ReadHistory
from cbert.model.conditioning.injector import Injector
from cbert.model.conditioning.label_add import LabelAdd
from cbert.model.conditioning.late_concat import LateConcat
from cbert.model.conditioning.late_gate import LateGate
from cbert.model.conditioning.method import Method
from cbert.model.conditioning.new_position import NewPosition
from cbert.model.conditioning.new_position_untied import NewPositionUntied
from cbert.model.conditioning.none import NoContext
from cbert.model.conditioning.prefix import Prefix
from cbert.model.conditioning.user_concat import UserConcat
from cbert.model.config import ModelConfig
from cbert.registry import Registry

_OF_CBERT: dict[str, type[Method]] = {
    "none": NoContext,  # no context, plain BERT
    "c": Concat,  # the context concatenated to every position
    "np": NewPosition,  # the context as one more position
    "gs": GlobalState,  # a global state that every block reads
    "gsu": GlobalStateUpdate,  # the same, updated between blocks
    "gsu_bi": BidirectionalGlobalState,  # the same, updated from the sequence, too
    "gs_deep": DeepGlobalState,  # gsu's updates all before the first block: a control
    "prefix": Prefix,  # one more position for each feature
    "np_untied": NewPositionUntied,  # np, with learned logits to and from the context
    "global_token": GlobalToken,  # np, with attention in a window
    "cross_attention": CrossAttention,  # every block attends to a token a feature
    "history": ReadHistory,  # a transformer over histories and features, read by every block
    "film": Film,  # the context scales and shifts in every block
    "adaln_zero": AdaptiveNorm,  # pre-norm blocks whose norms and gates the context makes
    "injector": Injector,  # an adapter in every block, its weights made by the context
    "label_add": LabelAdd,  # the context added to the embeddings
    "user_concat": UserConcat,  # item and context side by side in every layer
    "mag": AdaptationGate,  # a gated shift of the embeddings or of the output
    "late_concat": LateConcat,  # the context concatenated to the output
    "late_gate": LateGate,  # a gate that mixes the context into the output
}
_FIELDS = ("method", *section_fields(ModelConfig))
METHODS: Registry[Method] = Registry("method", Method, _OF_CBERT, _FIELDS)
HOOKS = (
    *("begin", "keys_values", "sublayer_input", "residual", "after_attention", "update"),
    "finish",
)
NAMES = METHODS.keys()  # A view: a method that is added later is there, too.
# The methods that the paper compares, in its order; a sweep has these unless others are named.
PAPER = ("none", "c", "np", "gs", "gsu")


def method_class(name: str) -> type[Method]:
    """The module of a method; raises `UserError` with the names there are."""
    try:
        return METHODS[name]
    except KeyError:
        hint = did_you_mean(name, METHODS)
        raise UserError(
            f"model.method is {name!r}; {hint} must be one of {', '.join(METHODS)}"
        ) from None


def config_sections() -> dict[str, type]:
    """The config section of each method that has one, by the method's name."""
    return {name: method.Config for name, method in METHODS.items() if method.Config}


def default_options(name: str, **choices: Any) -> Any:
    """The method's own options, its defaults but for the choices given; None if it has none."""
    section = method_class(name).Config
    return dataclasses.replace(section(), **choices) if section else None


def hooks(name: str) -> list[str]:
    """The hooks that a method overrides."""
    return [hook for hook in HOOKS if getattr(METHODS[name], hook) is not getattr(Method, hook)]
