"""The parts that every encoder block and every conditioning method is made of.

Legend: B examples, L positions, D model dimension.
"""

import dataclasses
import zlib

import jax
import jax.numpy as jnp
from flax import linen as nn

from cbert.config import field

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """The sizes and open choices of a model; the defaults give the paper's counts.

    The open choices are explained in [paper.md](paper.md#open-choices).
    """

    dimension: int = field(128, "D, the width of items and positions (d_model)", at_least=1)
    heads: int = field(8, "attention heads; their number divides D", at_least=1)
    layers: int = field(4, "encoder blocks", at_least=1)
    feed_forward: int = field(
        256, "width of a block's FNN, 2 D in the paper; it does not follow D", at_least=1
    )
    dropout: float = field(
        0.1,
        "fraction of entries dropped from embeddings and from each sub-layer's output",
        at_least=0,
        below=1,
    )
    positions: bool = field(False, "whether order matters: adds learned position embeddings")
    transform_activation: str = field(
        "relu",
        "activation of the dense layer before the output; `gelu` is BERT's",
        choices=("relu", "gelu"),
    )
    state_norm: str = field(
        "plain",
        "[GS] and [GSU]: after reading the state, the norm learns nothing and the value "
        "projection has a bias, or (`scale`) the norm learns a scale and there is no bias",
        choices=("plain", "scale"),
    )
    update_residual: bool = field(
        False, "[GSU]: whether an update is Norm(g + FNN(g)) instead of Norm(FNN(g))"
    )
    update_norm: bool = field(
        True, "[GSU]: whether an update is normalised; the paper's count says yes"
    )
    update_scale: float = field(
        0.0884,
        "[GSU]: initial scale of that norm; 0.0884 is 128^-0.5, and 1, the usual value, "
        "trains far worse",
        at_least=0,
    )
    concat: str = field(
        "project",
        "reading of [C]: `project` is C to D, then 2 D to D; `fnn` is (C + D) to D to D",
        choices=("project", "fnn"),
    )
    initializer: str = field(
        "scaled",
        "`scaled` by fan-in, or `bert`: normal, deviation 0.02, truncated at two deviations",
        choices=("bert", "scaled"),
    )
    numerical: str = field(
        "bins",
        "how numbers are embedded: one vector a bin, or a linear map",
        choices=("bins", "linear"),
    )
    constant_context: bool = field(
        False,
        "a control: every example has the same context, all of it missing, which shows what a "
        "method's parameters alone are worth",
    )
    dtype: str = field(
        "float32",
        "type of activations; parameters stay float32",
        choices=("float32", "bfloat16"),
    )


def kernel_init(hyper: Hyperparameters) -> nn.initializers.Initializer:
    if hyper.initializer == "bert":
        return nn.initializers.truncated_normal(0.02)
    return nn.initializers.lecun_normal()


def embedding_init(hyper: Hyperparameters, width: int) -> nn.initializers.Initializer:
    if hyper.initializer == "bert":
        return nn.initializers.truncated_normal(0.02)
    return nn.initializers.normal(width**-0.5)


def dense(hyper: Hyperparameters, features: int, name: str | None = None, bias: bool = True):
    return nn.Dense(
        features, bias, dtype=hyper.dtype, kernel_init=kernel_init(hyper), name=name
    )


def norm(
    hyper: Hyperparameters, scale: bool = True, bias: bool = True, begin: float = 1.0
) -> nn.LayerNorm:
    """begin: What the scale begins at."""
    init = nn.initializers.constant(begin)
    return nn.LayerNorm(dtype=hyper.dtype, use_scale=scale, use_bias=bias, scale_init=init)


def mix(x: Array) -> Array:
    """A bijection of `uint32` whose output bits each depend on all input bits.

    The multiply-xorshift form and constants are those of C. Wellons' `lowbias32`.
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


class Dropout(nn.Module):
    """Drops entries where a hash of (the step's noise, this module, the entry) is small.

    The hash is computed where it is used: nothing is drawn, stored or read, it costs a
    fraction of a generator's bits, and it is the same under `vmap`.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Array, noise: Array | None) -> Array:
        """noise: `uint32 []`, another one each step and device; None turns dropout off."""
        if noise is None or not self.rate:
            return x
        place = zlib.crc32("/".join(self.path).encode())
        # Behind a barrier the key is no constant, and one compiled loop serves all layers.
        key = jax.lax.optimization_barrier(mix(noise ^ jnp.uint32(place)))
        entries = jax.lax.iota(jnp.uint32, x.size).reshape(x.shape)
        bits = mix(mix(entries + key) ^ noise)
        kept = bits >= jnp.uint32(int(self.rate * 2**32))
        return jnp.where(kept, x * (1 / (1 - self.rate)), 0).astype(x.dtype)


class FNN(nn.Module):
    """W2 max(0, W1 x + b1) + b2, the paper's FNN (section 3, [GS])."""

    hyper: Hyperparameters
    hidden: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(dense(self.hyper, self.hidden, "hidden")(x))
        return dense(self.hyper, self.hyper.dimension, "out")(x)


class AddAndNorm(nn.Module):
    """Norm(x + Dropout(y)), around every sub-layer."""

    hyper: Hyperparameters
    scale: bool = True
    bias: bool = True

    @nn.compact
    def __call__(self, x: Array, y: Array, noise: Array | None) -> Array:
        y = Dropout(self.hyper.dropout)(y, noise)
        return norm(self.hyper, self.scale, self.bias)(x + y)
