"""Takes a few training steps, and gives parameters as plain arrays."""

import flax
import jax
import numpy as np

from cbert.model import parameter_tree
from cbert.training import run as run_lib

initialize = parameter_tree.initialize


def ones(model, key=None):
    """Parameters of ones, which need no compilation."""
    del key
    shapes = parameter_tree.shapes(model)
    return jax.device_put(jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes))


def flat(params):
    return {
        "/".join(k): np.asarray(v) for k, v in flax.traverse_util.flatten_dict(params).items()
    }


def steps(config, schema, count, made=None):
    made = made or run_lib.set_up(config, schema)
    rows = []
    while len(rows) < count:
        taken, metrics = made.advance(len(rows), config.train.steps_per_dispatch)
        metrics = jax.device_get(metrics)
        rows += [{name: metrics[name][step] for name in metrics} for step in range(taken)]
    return made.state, rows
