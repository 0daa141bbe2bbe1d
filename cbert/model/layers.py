"""The parts that every encoder block and every conditioning method is made of.

Legend: B examples, L positions, D model dimension.
"""

import zlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.scipy.stats import norm as gaussian

from cbert import parallel
from cbert.model import products
from cbert.model.config import ModelConfig
from cbert.model.layer_norm import LayerNorm

Array = jax.Array


@jax.custom_vjp
def gelu(x: Array) -> Array:
    """The exact GELU, whose steps in between are float32.

    Its backward pass computes them again, so that x alone is kept for it.
    """
    return nn.gelu(x.astype(jnp.float32), approximate=False).astype(x.dtype)


def _gelu_forward(x: Array) -> tuple[Array, Array]:
    return gelu(x), x


def _gelu_backward(x: Array, gradient: Array) -> tuple[Array]:
    exact = x.astype(jnp.float32)
    slope = gaussian.cdf(exact) + exact * gaussian.pdf(exact)
    return ((gradient * slope).astype(x.dtype),)


gelu.defvjp(_gelu_forward, _gelu_backward)

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": nn.relu,
    "gelu": gelu,
    "linear": lambda x: x,
}
# The name under which `FNN` sows its units into the collection `intermediates`.
UNITS = "units"


def uses_fast_kernels(config: ModelConfig) -> bool:
    """Whether `model.kernels` takes the fast forms: `auto` does on a CPU and on a GPU."""
    if config.kernels == "auto":
        return parallel.platform() in ("cpu", "gpu")
    return config.kernels == "fast"


def kernel_init(config: ModelConfig) -> nn.initializers.Initializer:
    """What draws kernels `[inputs, outputs]`.

    They are BERT's, a normal of 0.02 cut off at two deviations, or LeCun's, of variance
    1 / inputs.
    """
    if config.initializer == "bert":
        return nn.initializers.truncated_normal(0.02)
    return nn.initializers.lecun_normal()


def embedding_init(config: ModelConfig, width: int) -> nn.initializers.Initializer:
    """What draws tables `[rows, width]`: as BERT's kernels, or rows of norms near 1."""
    if config.initializer == "bert":
        return nn.initializers.truncated_normal(0.02)
    return nn.initializers.normal(width**-0.5)


def dense(
    config: ModelConfig,
    features: int,
    name: str | None = None,
    bias: bool = True,
    zero: bool = False,
) -> nn.Dense:
    """A dense layer; with `zero` its kernel begins at zero, as its bias does."""
    init = nn.initializers.zeros if zero else kernel_init(config)
    return dense_class(config)(features, bias, dtype=config.dtype, kernel_init=init, name=name)


def dense_class(config: ModelConfig) -> type[nn.Dense]:
    """Flax's dense layer, or the one with the same parameters that is faster here."""
    fast = uses_fast_kernels(config) and products.are_fast(jnp.dtype(config.dtype))
    return Bfloat16Dense if fast else nn.Dense


class Bfloat16Dense(nn.Dense):
    """Flax's dense layer by the products of bfloat16 that a CPU has units for."""

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        width, features = inputs.shape[-1], self.features
        kernel = self.param("kernel", self.kernel_init, (width, features))
        bias = jnp.zeros(features)
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (features,))
        rows = products.affine(inputs.reshape(-1, width).astype(jnp.bfloat16), kernel, bias)
        return rows.reshape(*inputs.shape[:-1], features)


def norm(
    config: ModelConfig, scale: bool = True, bias: bool = True, initial_scale: float = 1.0
) -> nn.LayerNorm | LayerNorm:
    """Flax's layer normalisation, or the one with the same parameters that is faster here."""
    return (LayerNorm if uses_fast_kernels(config) else nn.LayerNorm)(
        epsilon=config.norm_epsilon,
        dtype=config.dtype,
        use_scale=scale,
        use_bias=bias,
        scale_init=nn.initializers.constant(initial_scale),
    )


class Dropout(nn.Module):
    """Drops entries where the caller gave a dropout key (`rngs={"dropout": key}`).

    Without a key the module is deterministic. The plain form is Flax's.

    Attributes:
      config: Sizes and open choices.
      rate: The fraction that is dropped; None for that of the config.
    """

    config: ModelConfig
    rate: float | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        rate = self.config.dropout if self.rate is None else self.rate
        if not rate or not self.has_rng("dropout"):
            return x
        if uses_fast_kernels(self.config):
            assert self.scope is not None  # A module that is called is bound.
            seed = jax.random.bits(self.scope.rngs["dropout"].rng)
            return hashed_dropout(x, seed, "/".join(self.path), rate)
        return nn.Dropout(rate, deterministic=False)(x)


def hashed_dropout(x: Array, seed: Array, name: str, rate: float) -> Array:
    """Drops entries where a hash of (seed, name, entry) is small, and scales up the others.

    The hash is computed where it is used, so no random bits are drawn, stored or read. It costs
    a fraction of what a generator does, and it is the same under `vmap`.

    Args:
      x: Any shape.
      seed: `uint32 []`, another one each step and device.
      name: The name of the module that drops; another name drops other entries.
      rate: The fraction that is dropped.
    """
    key = mix(seed ^ jnp.uint32(zlib.crc32(name.encode())))
    if parallel.platform() == "cpu":
        # The barrier keeps the key from being a constant, so one loop serves all layers.
        key = jax.lax.optimization_barrier(key)
    entries = jax.lax.iota(jnp.uint32, x.size).reshape(x.shape)
    bits = mix(mix(entries + key) ^ seed)
    kept = bits >= jnp.uint32(int(rate * 2**32))
    return jnp.where(kept, x * (1 / (1 - rate)), 0).astype(x.dtype)


def mix(x: Array) -> Array:
    """A bijection of `uint32` whose output bits each depend on all input bits.

    The multiply-xorshift form and constants are those of C. Wellons' `lowbias32`.
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


class FNN(nn.Module):
    """W2 f(W1 x + b1) + b2, with f a ReLU in the paper (section 3, [GS])."""

    config: ModelConfig
    hidden: int
    activation: str = "relu"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = ACTIVATIONS[self.activation](dense(self.config, self.hidden, "hidden")(x))
        self.sow("intermediates", UNITS, x)
        return dense(self.config, self.config.dimension, "out")(x)


class AddAndNorm(nn.Module):
    """Norm(x + Dropout(y)), around every sub-layer."""

    config: ModelConfig
    scale: bool = True
    bias: bool = True

    @nn.compact
    def __call__(self, x: Array, y: Array) -> Array:
        y = Dropout(self.config)(y)
        return norm(self.config, self.scale, self.bias)(x + y)
