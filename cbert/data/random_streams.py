"""Streams of random numbers of NumPy, each of which has a name and equals no other.

NumPy pads seeds with zeros, so that `[seed, 1]` and `[seed, 1, 0]` would seed one stream. The
hash of a text that tells names and numbers apart does not. (JAX's numbers come from keys.)
"""

import numpy as np

from cbert.data.hashing import hash64


def stream(name: str, *numbers: int) -> np.random.Generator:
    """The generator of a name and numbers, the same on every machine.

    Args:
      name: What is drawn; each place in the code that draws has its own.
      numbers: What else decides the draw, such as a seed and an epoch.
    """
    return np.random.default_rng(hash64(repr((name, *map(int, numbers)))))
