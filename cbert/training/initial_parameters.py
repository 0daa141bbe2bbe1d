"""The parameters that a run begins with: units of a regression, and what is said of them."""

from collections.abc import Iterable, Sequence

import jax
import numpy as np
from flax import traverse_util

from cbert.model.parameter_tree import Params
from cbert.schema import Target

CLASSIFIER = "classifier"  # The head whose rows are a task's labels.


def in_units(name: str, values: np.ndarray, target: Target) -> np.ndarray:
    """`kernel` or `bias` of a regression's last layer, giving mean + scale y in place of y."""
    return values * target.scale + (target.mean if name == "bias" else 0.0)


def standardised(name: str, values: np.ndarray, target: Target) -> np.ndarray:
    """`kernel` or `bias` of a regression's last layer, giving y in place of mean + scale y."""
    return (values - (target.mean if name == "bias" else 0.0)) / target.scale


def names_of(params: Params) -> set[str]:
    """The names of all parameters, such as `embedding/items`."""
    return set(traverse_util.flatten_dict(params, sep="/"))


def described(
    source: str,
    joined: Params,
    not_found: Sequence[str],
    unused: Sequence[str],
    lines: Iterable[str] = (),
) -> list[str]:
    """Lines that say how many parameters come from a source, and name the others.

    Args:
      source: What they come from.
      joined: All parameters of the model.
      not_found: Names of those that begin anew.
      unused: Names of those of the source that the model does not have.
      lines: What else there is to say, each line once.
    """
    used = len(jax.tree.leaves(joined)) - len(not_found)
    others = (("begin anew", not_found), ("not used", unused))
    return [
        f"initialised from {source}: {used} parameters",
        *dict.fromkeys(lines),
        *(f"  {len(names)} {what}: {', '.join(names)}" for what, names in others if names),
    ]
