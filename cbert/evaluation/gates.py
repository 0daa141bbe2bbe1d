"""How far the gates are open by which a method lets the context in.

Legend: B examples of a batch.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cbert.data.columns import Split
from cbert.errors import UserError
from cbert.evaluation import sown
from cbert.evaluation.restore import Restored
from cbert.model.conditioning.method import GATES
from cbert.text_table import align

Array = jax.Array
TENTHS = 10
# A gate's values fall into ten bins from 0 to 1, and one for what is above.
RANGES = (
    *(f"from {n / TENTHS:.1f} to {(n + 1) / TENTHS:.1f}" for n in range(TENTHS)),
    "above 1",
)


def measure(restored: Restored, split: Split) -> dict[str, Any]:
    """The distribution of each gate over its entries, positions and examples.

    Returns:
      `examples`, and `gates`: a gate's name to its `mean` and its `fractions` in `RANGES`.
    """
    values, count = sown.over_queries(restored, split, distributions)
    means = {name: of.astype(np.float64).mean(axis=0).tolist() for name, of in values.items()}
    gates = {
        name: {"mean": mean, "fractions": fractions}
        for name, (mean, *fractions) in means.items()
    }
    return {"examples": count, "gates": gates}


def distributions(model: Any, kept: dict[str, Any], mask: Array) -> dict[str, Array]:
    """Each gate's mean, and its fractions in the ranges, `[B, 1 + ranges]`.

    Of a gate that several blocks sow it is the mean over these blocks.

    Raises:
      UserError: a method of somebody's own sows no gates.
    """
    found: dict[str, list[Array]] = {}
    for gates in kept.get("conditioning", {}).get(GATES, ()):
        for name, x in gates.items():
            found.setdefault(name, []).append(_distribution(x.astype(jnp.float32), mask))
    if not found:
        raise UserError(
            f"{model.encoder.method.__name__} shows gates and sows none; sow a dict from "
            f"name to [B, P, ...] under {GATES!r} into 'intermediates'"
        )
    return {name: jnp.mean(jnp.stack(of), axis=0) for name, of in found.items()}


def _distribution(x: Array, mask: Array) -> Array:
    x = x.reshape(*x.shape[:2], -1)  # A gate may be a number, or a vector for each head.
    tenths = jnp.clip(jnp.floor(TENTHS * x), 0, TENTHS - 1)
    index = jnp.where(x > 1, TENTHS, tenths)
    parts = [x, *(index == number for number in range(len(RANGES)))]
    return jnp.stack([sown.over_positions(part.mean(axis=-1), mask) for part in parts], axis=1)


def format_gates(measured: dict[str, Any]) -> str:
    """A table of `measure`: each gate's mean, and what falls into each range in percent."""
    gates = measured["gates"]
    rows = [["", *gates], ["mean", *(f"{gate['mean']:.3f}" for gate in gates.values())]]
    for number, name in enumerate(RANGES):
        fractions = (100 * gate["fractions"][number] for gate in gates.values())
        rows.append([f"% {name}", *(f"{fraction:.1f}" for fraction in fractions)])
    return align(rows)
