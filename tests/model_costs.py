"""The operations that a model is said to have are those of its traced program."""

import jax
import jax.numpy as jnp
import numpy as np

from cbert.model import cost, parameter_tree
from tests.test_benchmark import multiply_adds


def assert_traced(model, extra=0):
    """For three examples of five items and one query; `extra` is what the context encoder has.

    Set `attention.SHORT` to 0 first, because the fast form writes short sums out.
    """
    codes = jnp.zeros((3, 5), jnp.int32)
    context = {
        feature.name: np.repeat(feature.missing(), 3, axis=0)
        for feature in model.encoder.features
    }

    def forward(params):
        return model.apply({"params": params}, codes, context, codes[:, :1])[0]

    traced = multiply_adds(jax.make_jaxpr(forward)(parameter_tree.shapes(model)).jaxpr)
    assert cost.multiply_adds(model, 5, 1) + extra == traced / 3
