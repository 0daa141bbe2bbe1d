"""The functions of a text model that predictions need.

Legend: R texts, L positions, N masked tokens, D model dimension, V entries of the vocabulary.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from cbert.inference.text_program import CLS, MEAN, TextFunctions
from cbert.model.context import mean_pool
from cbert.model.heads import Pretraining
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
        {CLS: _embedding(model, _first), MEAN: _embedding(model, _mean)},
        _token_logits(model) if names_tokens else None,
    )


def _token_logits(model: TextBert) -> Callable[[Any, Array], Array]:
    def table_of(encoder: Any) -> Array:
        token = jnp.zeros((1, 1), jnp.int32)
        return encoder.embedding(token, token)[1]

    def token_logits(params: Any, vectors: Array) -> Array:  # [N, D] or [R, L, D].
        table: Any = model.encoder.apply({"params": params}, method=table_of)
        return all_logits(vectors, table, params["output_bias"])

    return token_logits


def _embedding(model: TextBert, pool: Callable) -> Callable[..., Array]:
    """The last block's output, pooled over the positions of each text."""

    def embedding(
        params: Any, tokens: Array, segments: Array, context: dict[str, Array]
    ) -> Array:
        mask = tokens != PAD_ITEM

        def encode(encoder: Any) -> Array:
            x, _ = encoder.embedding(jnp.maximum(tokens, 0), segments)
            return pool(encoder, x, mask, context)

        return model.encoder.apply({"params": params}, method=encode)  # type: ignore[return-value]

    return embedding


def _first(encoder: Any, x: Array, mask: Array, context: dict[str, Array]) -> Array:
    """`float32 [R, D]`, at [CLS]."""
    queries = jnp.zeros((x.shape[0], 1), jnp.int32)
    return encoder(x, mask, context, queries)[:, 0].astype(jnp.float32)


def _mean(encoder: Any, x: Array, mask: Array, context: dict[str, Array]) -> Array:
    """`float32 [R, D]`, the mean over all tokens, [CLS] and [SEP] included."""
    return mean_pool(encoder(x, mask, context).astype(jnp.float32), mask)
