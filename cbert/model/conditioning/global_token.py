"""The context as a global token of windowed attention, for long texts."""

import dataclasses

import jax.numpy as jnp

from cbert.config import field
from cbert.errors import UserError
from cbert.model.conditioning.method import ExtraKeys
from cbert.model.conditioning.new_position import NewPosition
from cbert.model.layers import Array


@dataclasses.dataclass(frozen=True)
class GlobalTokenConfig:
    """The method `global_token`."""

    window: int = field(
        0,
        "how many positions before and after itself a token attends to, beside the context's; "
        "0 for all. Attention stays dense, so a window saves no time",
        at_least=0,
    )


class GlobalToken(NewPosition):
    """[NP] whose tokens attend to those within a window and to the context, which sees all.

    It is the global token of BigBird (Zaheer et al. 2020) without its random keys. What is
    farther away than the window reaches a token through other tokens and through the context's
    position. The window is a mask on dense attention, so it changes what is learned and saves
    neither time nor memory. Without a window, or with one as long as the text, it is [NP].

    With `model.start_as_plain` it begins as the model without the context, whose attention has
    the same window.
    """

    Config = GlobalTokenConfig

    def setup(self) -> None:
        if self.options.window and not self.config.positions:
            raise UserError(
                f"model.global_token.window is {self.options.window}, but model.positions is "
                "false, so no token is near another; set model.global_token.window=0"
            )
        super().setup()

    def keys_values(self, layer: int, state: Array) -> ExtraKeys:
        extra = super().keys_values(layer, state)
        if not self.options.window:
            return extra
        index, is_context = jnp.arange(state.shape[0]), state > 0
        near = jnp.abs(index[:, None] - index) <= self.options.window
        return dataclasses.replace(extra, visible=near | is_context[:, None] | is_context)
