"""The tree of a model's parameters: how it is drawn, its shapes, and its counts."""

import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import traverse_util

from cbert import parallel
from cbert.model.encoder import Encoder
from cbert.model.layers import Array

Params = dict[str, Any]
Path = tuple[str, ...]  # Of a parameter in its tree.
# The parts of a model by which the context enters.
CONTEXT_PARTS = ("context_encoder", "conditioning")
BLOCK = "blocks_"  # What the name of a block begins with; its number, from 0, follows.


class Model(Protocol):
    """An encoder with a head, of items or of text."""

    encoder: Encoder

    @property
    def head(self) -> nn.Module: ...

    def smallest_inputs(self) -> tuple[Any, ...]: ...

    def init(self, rngs: Any, *args: Any) -> Any: ...


def draw(model: Model, key: Array) -> Params:
    """Fresh parameters, float32; it can be traced, and `initialize` is its compiled form."""
    return model.init(key, *model.smallest_inputs())["params"]


# It runs once, and compiling a draw for each parameter is all that takes long.
UNOPTIMISED = {"xla_backend_optimization_level": 0}
_compiled = jax.jit(draw, static_argnums=0, compiler_options=UNOPTIMISED)


def initialize(model: Model, key: Array) -> Params:
    """Fresh parameters, float32; a program of its own, not to be called inside another.

    A GPU's host draws them, because compiling that for the GPU takes four times as long.
    """
    if parallel.platform() != "gpu" or not (host := parallel.host()):
        return _compiled(model, key)
    drawn = jax.device_get(_compiled(model, jax.device_put(key, host)))
    return jax.device_put(drawn)  # Bound to no device: others may hold what is not drawn.


def rounded(model: Model, params: Params) -> Params:
    """The parameters for predictions: the kernels of blocks have `model.dtype`.

    The blocks would round them again for every batch. What they compute is the same to the bit.
    """
    dtype = model.encoder.config.dtype
    flat = traverse_util.flatten_dict(params)
    for path, leaf in flat.items():
        if path[0].startswith(BLOCK) and path[-1] == "kernel":
            flat[path] = jnp.asarray(leaf, dtype)
    return traverse_util.unflatten_dict(flat)


def shapes(model: Model) -> Params:
    """The parameters' shapes and dtypes; nothing is computed."""
    return _compiled.eval_shape(model, jax.random.key(0))  # It traces what `initialize` runs.


def parameter_sizes(model: Model) -> dict[Path, int]:
    """The number of entries of each parameter, by its path."""
    flat = traverse_util.flatten_dict(shapes(model))
    return {path: math.prod(leaf.shape) for path, leaf in flat.items()}


def table_1_count(model: Model) -> int:
    """The number of parameters that Table 1 counts."""
    return sum(size for path, size in parameter_sizes(model).items() if is_in_table_1(path))


def is_in_table_1(path: Path) -> bool:
    """Whether Table 1 counts it, as it does all but context embeddings and the last layer.

    The item embeddings are the last layer, which is tied to them. Its bias lies beside them,
    or, for texts, on its own.
    """
    return path[0] not in ("embedding", "context_encoder", "output_bias")
