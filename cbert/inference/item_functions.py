"""The functions of a model of sets or sequences that predictions need."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from cbert.inference.program import Functions
from cbert.model import parameter_tree
from cbert.model.contextual_bert import ContextualBert
from cbert.model.scoring import all_logits


def functions(model: ContextualBert) -> Functions:
    """The functions of a run's model."""

    def logits(
        params: Any, codes: jax.Array, context: dict[str, jax.Array], positions: jax.Array
    ) -> jax.Array:
        outputs: Any = model.apply({"params": params}, codes, context, positions[:, None])
        hidden, table, bias = outputs
        return all_logits(hidden[:, 0], table, bias)

    def context_vector(params: Any, context: dict[str, jax.Array]) -> jax.Array:
        vector: Any = model.apply({"params": params}, context, method="context_vector")
        return vector.astype(jnp.float32)

    prepare = functools.partial(parameter_tree.rounded, model)
    return Functions(logits, context_vector, prepare)
