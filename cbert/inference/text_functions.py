"""The functions of a text model that predictions need.

Legend: R texts, L positions, N masked tokens, D model dimension, V entries of the vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from cbert.inference.text_program import TextFunctions
from cbert.model import parameter_tree
from cbert.model.heads import Pretraining
from cbert.model.pooling import FIRST_TOKEN, MEAN, pool
from cbert.model.scoring import all_logits
from cbert.model.text_bert import TextBert
from cbert.schema import PAD_ITEM, Schema
from cbert.tasks import text_task
from cbert.tasks.masked_language import MaskedLanguage
from cbert.tasks.regression import Regression

Array = jax.Array


def functions(
    model: TextBert, config: ml_collections.ConfigDict, schema: Schema
) -> TextFunctions:
    """The functions of a run's model.

    Args:
      model: Of the config.
      config: Has been checked.
      schema: The data's schema.
    """

    def outputs(
        params: Any, tokens: Array, segments: Array, context: dict[str, Array]
    ) -> dict[str, Array]:
        columns = {"items": tokens, "segments": segments, "context": context}
        made = text_task.outputs(model, params, columns)
        if isinstance(made, Pretraining):
            if made.next_sentence is None:
                return {"vectors": made.vectors}
            return {"vectors": made.vectors, "next_sentence": made.next_sentence}
        if config.task.name == Regression.name:
            target = schema.known_target
            return {"number": target.mean + made[:, 0] * target.scale}
        return {"logits": made}

    names_tokens = config.task.name == MaskedLanguage.name
    return TextFunctions(
        outputs,
        {pooling: _embedding(model, pooling) for pooling in (FIRST_TOKEN, MEAN)},
        _token_logits(model) if names_tokens else None,
        functools.partial(parameter_tree.rounded, model),
    )


def _token_logits(model: TextBert) -> Callable[[Any, Array], Array]:
    def table_of(encoder: Any) -> Array:
        token = jnp.zeros((1, 1), jnp.int32)
        return encoder.embedding(token, token)[1]

    def token_logits(params: Any, vectors: Array) -> Array:  # [N, D] or [R, L, D].
        table: Any = model.encoder.apply({"params": params}, method=table_of)
        return all_logits(vectors, table, params["output_bias"])

    return token_logits


def _embedding(model: TextBert, pooling: str) -> Callable[..., Array]:
    """The last block's output, pooled over the positions of each text."""

    def embedding(
        params: Any, tokens: Array, segments: Array, context: dict[str, Array]
    ) -> Array:
        mask = tokens != PAD_ITEM
        first = jnp.zeros((tokens.shape[0], 1), jnp.int32) if pooling == FIRST_TOKEN else None
        inputs = jnp.maximum(tokens, 0), segments, mask, context, first
        x: Any = model.apply({"params": params}, *inputs, method="hidden_states")
        return pool(x, mask, pooling)

    return embedding
