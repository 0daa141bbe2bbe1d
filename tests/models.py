"""Small models whose parameters are no special ones, and what they make of a batch."""

import functools

import jax
import numpy as np

from cbert.model import bert
from cbert.model.layers import Hyperparameters
from cbert.schema import PAD_ITEM

SMALL = Hyperparameters(dimension=16, heads=4, layers=3, feed_forward=24, dropout=0.0)


@functools.lru_cache
def initialized(schema, method, hyper, seed):
    return bert.initialize(bert.build(hyper, method, schema), jax.random.key(seed))


def made(schema, method, hyper=SMALL, seed=0):
    model = bert.build(hyper, method, schema)
    params = initialized(schema, method, hyper, seed)
    # Biases and scales away from 0 and 1, so that none of them can be forgotten unseen.
    noise = np.random.default_rng(1)
    params = jax.tree.map(
        lambda x: x + 0.1 * noise.standard_normal(x.shape, np.float32), params
    )
    return model, params


def batch(split, rows=6, length=8):
    context = {name: column[:rows] for name, column in split.context.items()}
    return split.items[:rows, :length], context


def encode(model, params, codes, context):
    """The last block's output at every position, `[B, L, D]`."""
    everywhere = np.broadcast_to(np.arange(codes.shape[1]), codes.shape)

    def run(module):
        x, _ = module.embedding(codes)
        return module.encode(x, codes != PAD_ITEM, context, everywhere)

    return jax.jit(functools.partial(model.apply, method=run))({"params": params})
