"""The context as a prefix: one more position for each feature."""

from typing import Any

from cbert.model.conditioning.feature_tokens import FeatureTokens
from cbert.model.conditioning.method import TOKENS, Sizes
from cbert.model.conditioning.new_position import NewPosition, append
from cbert.model.context import Context
from cbert.model.layers import Array
from cbert.schema import Feature


class Prefix(NewPosition):
    """I = [x_1, ..., x_n, t_1, ..., t_F] with t_f = W_f e_f + b_f.

    In the spirit of CG-BERT (Xia et al. 2020), which writes the tokens of an intent before an
    utterance; its latent variable is left out. Every position may attend to every feature that
    is observed, and missing ones are masked out. The bias b_f tells the features apart, because
    nothing else marks them. With one feature, always observed, it is [NP].

    With `model.start_as_plain` the features' positions have gates, as that of [NP] has.
    """

    def setup(self) -> None:
        self.tokens = FeatureTokens(self.config)
        self.make_gates()

    def begin(self, x: Array, mask: Array, context: Context) -> tuple[Array, Array, Array]:
        return append(x, mask, *self.tokens(context))

    @classmethod
    def keys(cls, features: tuple[Feature, ...], tokens: int, options: Any) -> tuple[str, ...]:
        return *(TOKENS for _ in range(tokens)), *(feature.name for feature in features)

    @classmethod
    def multiply_adds(cls, sizes: Sizes) -> float:
        return FeatureTokens.multiply_adds(sizes)

    @classmethod
    def extra_positions(cls, sizes: Sizes) -> float:
        return sizes.features
