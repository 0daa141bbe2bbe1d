"""Gates are counted by ranges of their values, by hand."""

import functools

import jax
import numpy as np

from cbert.evaluation import gates
from cbert.model.conditioning.method import GATES


def test_values_are_counted_by_range_and_without_padding():
    """One position of two is padding; a gate of one is in the last tenth; any form will do."""
    gate = np.float32([[[0.0625, 1.0, 1.5, 0.5], [9.0] * 4]])
    forms = {"gate": gate, "of heads": gate.reshape(1, 2, 2, 2), "number": gate[:, :, 2]}
    kept = {"conditioning": {GATES: (forms,)}}
    distributions = jax.jit(functools.partial(gates.distributions, None))
    measured = distributions(kept, np.array([[True, False]]))
    found = {name: of.tolist() for name, of in measured.items()}
    fractions = [0.25, 0, 0, 0, 0, 0.25, 0, 0, 0, 0.25, 0.25]
    assert found["gate"] == found["of heads"] == [[3.0625 / 4, *fractions]]
    assert found["number"] == [[1.5, *[0] * 10, 1]]
