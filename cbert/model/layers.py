"""The parts that every encoder block and every conditioning method is made of.

Legend: B examples, L positions, D model dimension.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from cbert import parallel
from cbert.model import hashing, products
from cbert.model.config import ModelConfig
from cbert.model.gelu import gelu
from cbert.model.layer_norm import LayerNorm

Array = jax.Array

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
            return hashed_dropout(x, self._seed(), self._name(), rate)
        return nn.Dropout(rate, deterministic=False)(x)

    def keys(self) -> Array:
        """What a kernel that drops entries itself has to know, `uint32 [2]`."""
        return jnp.stack(hashing.keys(self._seed(), self._name()))

    def _seed(self) -> Array:
        assert self.scope is not None  # A module that is called is bound.
        return jax.random.bits(self.scope.rngs["dropout"].rng)

    def _name(self) -> str:
        """Its path, and from its second call on the call's number as well."""
        assert self.scope is not None
        counters = self.scope.root.rng_counters  # New in each `apply`.
        calls = counters[self.path] = counters.get(self.path, -1) + 1
        return "/".join(self.path) + (f"/{calls}" if calls else "")


def hashed_dropout(x: Array, seed: Array, name: str, rate: float) -> Array:
    """Drops entries where a hash of (seed, name, entry) is small, and scales up the others.

    Args:
      x: Any shape.
      seed: `uint32 []`, another one each step and device.
      name: The name of the module that drops; another name drops other entries.
      rate: The fraction that is dropped.
    """
    key, seed = hashing.keys(seed, name)
    if parallel.platform() == "cpu":
        # The barrier keeps the key from being a constant, so one loop serves all layers.
        key = jax.lax.optimization_barrier(key)
    entries = jax.lax.iota(jnp.uint32, x.size).reshape(x.shape)
    kept = hashing.kept(entries, key, seed, rate)
    return jnp.where(kept, x * (1 / (1 - rate)), 0).astype(x.dtype)


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
