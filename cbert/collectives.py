"""What the devices of a mapped function tell each other.

Outside of a mapped function nothing is split: there it is as if there were one device.

Legend: n devices, N entries of one device.
"""

from typing import Any

import jax
from jax import lax

from cbert.parallel import AXIS

Array = jax.Array


def is_mapped() -> bool:
    """Returns whether this is inside a function that is mapped over devices."""
    try:
        lax.axis_index(AXIS)
    except NameError:
        return False
    return True


def device_index() -> Array | int:
    """The index of this device inside a mapped function; 0 outside."""
    return lax.axis_index(AXIS) if is_mapped() else 0


def total(tree: Any) -> Any:
    """The sum over all devices inside a mapped function; one device need not copy."""
    return lax.psum(tree, AXIS) if is_mapped() and lax.axis_size(AXIS) > 1 else tree


def gather(x: Array) -> Array:
    """Every device's `[N, ...]`, one after the other: `[n N, ...]`."""
    return lax.all_gather(x, AXIS, tiled=True) if is_mapped() else x


def sum_parts(x: Array) -> Array:
    """The sum over devices of `[n N, ...]`, of which each device gets its part `[N, ...]`."""
    return lax.psum_scatter(x, AXIS, tiled=True) if is_mapped() else x


def exchange(x: Array) -> Array:
    """What every device has for this one: of `[n N]`, each one's part `[N]`, as `[n, N]`."""
    if not is_mapped():
        return x[None]
    return lax.all_to_all(x.reshape(lax.axis_size(AXIS), -1), AXIS, 0, 0)
