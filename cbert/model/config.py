"""The sizes and open choices of a model; those of a conditioning method are in its file."""

import dataclasses
from collections.abc import Iterable

from cbert.config import field
from cbert.errors import UserError

ZERO, POPULARITY = "zero", "popularity"
MEAN, SUM = "mean", "sum"


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The sizes and open choices of a model; the defaults give the paper's counts.

    The open choices are explained in [paper.md](paper.md#open-choices).
    """

    dimension: int = field(128, "D, the width of items and positions (d_model)", at_least=1)
    item_dimension: int = field(
        0,
        "E, the width of the items' own embeddings, which a learned linear map brings to D, so "
        "that [vectors of another width](data.md#vectors-of-items) fit; 0 for D without a map",
        at_least=0,
    )
    heads: int = field(8, "attention heads; their number divides D", at_least=1)
    layers: int = field(4, "encoder blocks", at_least=1)
    feed_forward: int = field(
        256, "width of a block's FNN, 2 D in the paper; it does not follow D", at_least=1
    )
    activation: str = field(
        "relu",
        "activation of a block's FNN; `gelu` is BERT's, exact",
        choices=("relu", "gelu"),
    )
    dropout: float = field(
        0.1,
        "fraction of entries dropped from embeddings and from each sub-layer's output",
        at_least=0,
        below=1,
    )
    attention_dropout: float = field(
        0.0, "fraction of attention weights dropped; BERT drops 0.1", at_least=0, below=1
    )
    positions: bool = field(False, "whether order matters: adds learned position embeddings")
    embedding_norm: bool = field(
        False, "whether embeddings are normalised before the first block, as in BERT"
    )
    transform_activation: str = field(
        "relu",
        "activation of the dense layer before the output; `gelu` is BERT's, exact, and "
        "`linear` is none",
        choices=("relu", "gelu", "linear"),
    )
    transform_norm: bool = field(
        False, "whether a norm follows the dense layer before the output, as in BERT"
    )
    norm_epsilon: float = field(
        1e-6, "what every norm adds to the variance; BERT adds 1e-12", above=0
    )
    initializer: str = field(
        "scaled",
        "`scaled` by fan-in, or `bert`: normal, deviation 0.02, truncated at two deviations; "
        "with `bert` a context begins weak",
        choices=("bert", "scaled"),
    )
    output_bias: str = field(
        ZERO,
        "what the output layer's bias begins at for masked items: `zero`, or `popularity`, the "
        "logarithm of how often each item occurs in training",
        choices=(ZERO, POPULARITY),
    )
    start_as_plain: bool = field(
        False,
        "whether a context begins without effect, so that before the first step the outputs "
        "are those without it, to rounding: for a context added to pretrained weights",
    )
    numerical: str = field(
        "bins",
        "how numbers are embedded: one vector a bin, or a linear map",
        choices=("bins", "linear"),
    )
    value_pooling: str = field(
        MEAN,
        "how the embeddings of a feature's several values or of a history's items become one: "
        "`mean`, or `sum`, which also tells how many they are",
        choices=(MEAN, SUM),
    )
    constant_context: bool = field(
        False,
        "a control: every example has the same context, all of it missing, which shows what a "
        "method's parameters achieve without information",
    )
    dtype: str = field(
        "float32",
        "type of activations; parameters stay float32; bfloat16 is faster on CPUs that have "
        "units or instructions for it (AMX, AVX-512 BF16)",
        choices=("float32", "bfloat16"),
    )
    kernels: str = field(
        "auto",
        "`fast`: own forms of attention, dropout, cross-entropy and the optimizer's pass; "
        "`plain`: the libraries'; `auto`: fast on CPUs and GPUs, and for attention up to 8 "
        "positions and, on GPUs, in bfloat16",
        choices=("auto", "plain", "fast"),
        changes_results=False,
    )
    remat: bool = field(
        False,
        "whether the backward pass computes each block again, which saves memory",
        changes_results=False,
    )


def check_same(
    fields: Iterable[str], ours: ModelConfig, theirs: ModelConfig, whose: str
) -> None:
    """Refuses parameters of a model that differs in one of the fields.

    Raises:
      UserError: it names the field and both values; `whose` says what the other one is of.
    """
    for name in fields:
        one, other = getattr(ours, name), getattr(theirs, name)
        if one != other:
            raise UserError(
                f"model.{name} is {one}, and {whose} is {other}; set model.{name}={other}"
            )
