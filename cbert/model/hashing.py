"""Random choices from a hash of where an entry stands, which is made where it is used.

No random bits are drawn, stored or read. A hash costs a fraction of what a generator does, and
it is the same under `vmap`.

Legend: R rows and C columns of a matrix.
"""

import zlib

import jax
import jax.numpy as jnp

Array = jax.Array


def keys(seed: Array, name: str) -> tuple[Array, Array]:
    """The two numbers that the hash of a module depends on, `uint32 []`.

    Args:
      seed: `uint32 []`, another one each step and device.
      name: The name of the module; another name chooses other entries.
    """
    return mix(seed ^ jnp.uint32(zlib.crc32(name.encode()))), seed


def hashes(numbers: Array, key: Array, seed: Array) -> Array:
    """The hash of each number, `uint32 [...]`, by the two numbers of `keys`."""
    return mix(mix(numbers + key) ^ seed)


def kept(entries: Array, key: Array, seed: Array, rate: float) -> Array:
    """Which entries, by their numbers `uint32 [...]`, stay where a fraction is dropped."""
    return hashes(entries, key, seed) >= _threshold(rate)


def kept_in_rows(rows: Array, columns: Array, rate: float) -> Array:
    """Which entries of rows stay, in half of the steps of `kept`.

    Args:
      rows: `uint32 [R]`, hashes of the rows' numbers.
      columns: `uint32 [C]`, numbers of columns.
      rate: The fraction that is dropped.

    Returns:
      `bool [R, C]`.
    """
    # The last step of `mix` changes only bits that hardly ever decide.
    return _stir(rows[:, None] + columns) >= _threshold(rate)


def mix(x: Array) -> Array:
    """A bijection of `uint32` whose output bits each depend on all input bits.

    The multiply-xorshift form and constants are those of C. Wellons' `lowbias32`.
    """
    x = _stir(x)
    return x ^ (x >> 16)


def _stir(x: Array) -> Array:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    return (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)


def _threshold(rate: float) -> Array:
    return jnp.uint32(int(rate * 2**32))
