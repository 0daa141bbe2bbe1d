"""Small models with parameters away from their initial values, and their outputs."""

import functools

import jax
import numpy as np

from cbert.model import conditioning, contextual_bert
from cbert.model.config import ModelConfig
from cbert.schema import PAD_ITEM

SMALL = ModelConfig(dimension=16, heads=4, layers=3, feed_forward=24, dropout=0.0)


@functools.lru_cache
def initialized(model, seed):
    return contextual_bert.initialize(model, jax.random.key(seed))


def build(schema, method, config=SMALL, **options):
    """A model; `options` are fields of the method's own section."""
    own = conditioning.default_options(method, **options)
    return contextual_bert.build(config, method, schema, own)


def made(schema, method, config=SMALL, seed=0, **options):
    model = build(schema, method, config, **options)
    # Biases and scales differ from 0 and 1, so that a test fails if one of them is not used.
    random = np.random.default_rng(1)
    params = jax.tree.map(
        lambda x: x + 0.1 * random.standard_normal(x.shape, np.float32),
        initialized(model, seed),
    )
    return model, params


def batch(split, rows=6, length=8):
    context = {name: column[:rows] for name, column in split.context.items()}
    return split.items[:rows, :length], context


def encode(model, params, codes, context):
    """The last block's output at every position, `[B, L, D]`."""

    def run(encoder):
        x, _ = encoder.embedding(codes)
        return encoder(x, codes != PAD_ITEM, context)

    return jax.jit(functools.partial(model.encoder.apply, method=run))({"params": params})
