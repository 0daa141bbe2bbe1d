"""The context added to the embeddings of tokens."""

import dataclasses

from cbert.config import field
from cbert.errors import UserError
from cbert.model.conditioning.method import Method, Sizes
from cbert.model.context import Context
from cbert.model.layers import Array, dense


@dataclasses.dataclass(frozen=True)
class LabelAddConfig:
    """The method `label_add`."""

    where: str = field(
        "all",
        "the context is added to every token's embedding, or (`cls`) to the first one's alone, "
        "which is `[CLS]` in a text",
        choices=("all", "cls"),
    )


class LabelAdd(Method):
    """x_i = x_i + W c before the first block, for every token or for the first alone.

    CBERT (Wu et al. 2018) puts a label's embedding in place of the segment's, and so adds it to
    every token; the Contextual BERT paper describes it as added to `[CLS]`. Here segments stay,
    and W c is added after the embeddings' norm and dropout. It is the smallest of the methods:
    no position, no layer and no norm of its own.

    With `model.start_as_plain` W begins at zero.
    """

    Config = LabelAddConfig
    starts_as_plain = True
    zero_is_plain = ("project",)

    def setup(self) -> None:
        config = self.config
        if self.options.where == "cls" and not config.positions:
            raise UserError(
                "model.label_add.where is 'cls', but model.positions is false, so no token is "
                "the first; set model.label_add.where=all"
            )
        self.project = dense(config, config.dimension, zero=config.start_as_plain)

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, None]:
        y = self.project(context.vector)
        if self.options.where == "cls":
            return x.at[:, 0].add(y), mask, None
        return x + y[:, None], mask, None

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return sizes.context * sizes.config.dimension
