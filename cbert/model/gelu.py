"""The exact GELU of BERT, x Φ(x), with its own backward pass."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from cbert import parallel

Array = jax.Array

# Formula 7.1.26 of Abramowitz and Stegun: 1 - erf(z) is nearly exp(-z^2) times a polynomial
# of y = 1 / (1 + P z), whose highest coefficient comes first and whose constant is 0.
P = 0.3275911
COEFFICIENTS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)


@jax.custom_vjp
def gelu(x: Array) -> Array:
    """x Φ(x), whose steps in between are float32.

    Its backward pass computes them again, so that x alone is kept for it.
    """
    exact = x.astype(jnp.float32)
    return (exact * _gaussian(exact)[0]).astype(x.dtype)


def _forward(x: Array) -> tuple[Array, Array]:
    return gelu(x), x


def _backward(x: Array, gradient: Array) -> tuple[Array]:
    exact = x.astype(jnp.float32)
    cumulative, density = _gaussian(exact)
    return ((gradient * (cumulative + exact * density)).astype(x.dtype),)


gelu.defvjp(_forward, _backward)


def _gaussian(x: Array) -> tuple[Array, Array]:
    """Φ and the density of a standard normal at `float32 [...]`, to 3e-7."""
    exponential = jnp.exp(-0.5 * jnp.square(x))
    density = exponential / math.sqrt(2 * math.pi)
    if parallel.platform() != "gpu":
        # erfc, which is exact for small Φ too, takes a CPU twice as long.
        return 0.5 + 0.5 * lax.erf(x * math.sqrt(0.5)), density
    # The library's erf takes a GPU longer than to read x and to write what comes of it. Here
    # both results share an exponential, and the square root is one instruction.
    y = lax.rsqrt(jnp.square(1 + P / math.sqrt(2) * jnp.abs(x)))
    polynomial = jnp.float32(COEFFICIENTS[0])
    for coefficient in COEFFICIENTS[1:]:
        polynomial = polynomial * y + coefficient
    tail = 0.5 * polynomial * exponential
    return jnp.where(x > 0, 1 - tail, tail), density
