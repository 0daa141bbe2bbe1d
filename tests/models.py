"""Small models with parameters away from their initial values, and their outputs."""

import dataclasses
import functools

import jax
import numpy as np

from cbert.model import conditioning, contextual_bert, parameter_tree
from cbert.model.config import ModelConfig
from cbert.schema import PAD_ITEM

SMALL = ModelConfig(dimension=16, heads=4, layers=2, feed_forward=24, dropout=0.0)
# A state's second update needs a third block, which makes a test half as long again.
THREE_LAYERS = dataclasses.replace(SMALL, layers=3)


@functools.lru_cache
def initialized(model, seed):
    return parameter_tree.initialize(model, jax.random.key(seed))


def build(schema, method, config=SMALL, **options):
    """A model; `options` are fields of the method's own section."""
    own = conditioning.default_options(method, **options)
    return contextual_bert.build(config, method, schema, own)


def made(schema, method, config=SMALL, seed=0, **options):
    model = build(schema, method, config, **options)
    return model, drawn(model, seed)


def drawn(model, seed=0):
    """Parameters as after training: no kernel is zero, no bias 0 and no scale 1.

    So a test fails where one of them is not used. NumPy draws them, because compiling the
    model's own draws takes longer than most tests.
    """
    random = np.random.default_rng(seed)

    def draw(path, shape):
        noise = random.standard_normal(shape.shape, np.float32)
        name = path[-1].key
        if name == "kernel":
            return noise / np.sqrt(shape.shape[0], dtype=np.float32)
        if name in ("embedding", "items", "special"):
            return noise / np.sqrt(shape.shape[1], dtype=np.float32)
        return (name == "scale") + np.float32(0.1) * noise

    return jax.device_put(jax.tree_util.tree_map_with_path(draw, parameter_tree.shapes(model)))


def batch(split, rows=6, length=8):
    context = {name: column[:rows] for name, column in split.context.items()}
    return split.items[:rows, :length], context


def applied(model, params, function, *arguments):
    """What a function, or a method of that name, gives that takes the encoder.

    It is compiled as a whole: operation by operation, the compilations take longer.
    """
    apply = functools.partial(model.encoder.apply, method=function)
    return jax.jit(apply)({"params": params}, *arguments)


def encode(model, params, codes, context, queries=None):
    """The last block's output at every position, `[B, L, D]`, or at those asked for."""

    def run(encoder):
        x, _ = encoder.embedding(codes)
        return encoder(x, codes != PAD_ITEM, context, queries)

    return applied(model, params, run)
