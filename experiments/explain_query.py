"""What `explain` shows of one query: where it attends, or what each feature changes in it."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import ml_collections
import numpy as np

from cbert.errors import UserError
from cbert.evaluation import attention
from cbert.inference.context import CheckedContext
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Explanation, Query
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextExplanation, TextQuery
from cbert.text_table import align
from cbert.training import config as config_lib
from experiments import query_flags

_LONGEST_VALUE = 40  # Characters of a feature's value that are shown.


@dataclasses.dataclass(frozen=True)
class _Encoded:
    """A query as the model reads it.

    Attributes:
      predictor: The run's.
      positions: What stands at each position, as a person reads it.
      columns: The columns of tokens, each `[L]`.
      context: The checked context.
      notes: Lines about what is unknown.
    """

    predictor: Predictor | TextPredictor
    positions: list[str]
    columns: dict[str, np.ndarray]
    context: CheckedContext
    notes: list[str]


def show_attention(
    config: ml_collections.ConfigDict, query: Query | TextQuery, block: int
) -> None:
    """Prints the attention of each position.

    Args:
      config: The run's config.
      query: The query.
      block: The block, from 1; 0 for the mean over all.

    Raises:
      UserError: the model has no such block, or the query is not one that it answers.
    """
    if block > config.model.layers:
        raise UserError(f"--block is {block}; the blocks are 1 to {config.model.layers}")
    encoded = _encoded_items(query) if isinstance(query, Query) else _encoded_text(query)
    schema, given = encoded.predictor.schema, encoded.context
    model = config_lib.build_model(config, schema)
    context = schema.encode_contexts([given.values])
    rows = {name: column[None] for name, column in encoded.columns.items()}
    params = encoded.predictor.program.params
    weights = attention.of_one(model, params, {**rows, "context": context})
    names = attention.names(model)
    if query_flags.JSON.value:
        shown = {"positions": encoded.positions, "names": names, "weights": weights.tolist()}
        print(json.dumps(shown))
        return
    of_block = weights[block - 1] if block else weights.mean(axis=0)
    print(attention.format_one(encoded.positions, names, of_block))
    notes = encoded.notes + query_flags.context_notes(given.unknown, given.missing)
    if notes:
        print("\n" + "\n".join(notes))


def _encoded_items(query: Query) -> _Encoded:
    predictor = query_flags.load_for_sets("give --text")
    encoded = predictor.check(query)
    shown = list(query.items[encoded.cut :])
    shown += [None] * (len(encoded.codes) - len(shown))
    return _Encoded(
        predictor,
        ["(masked)" if item is None else item for item in shown],
        {"items": np.array(encoded.codes, np.int32)},
        encoded.context,
        query_flags.item_notes(encoded.unknown_items, encoded.cut > 0),
    )


def _encoded_text(query: TextQuery) -> _Encoded:
    predictor = query_flags.load_for_texts("give --items")
    encoded = predictor.check(query)
    tokens = encoded.tokens
    return _Encoded(
        predictor,
        [predictor.schema.items[code] for code in tokens.codes],
        {"items": tokens.codes, "segments": tokens.segments},
        encoded.context,
        query_flags.text_notes(tokens.cut > 0),
    )


def show_features(query: Query | TextQuery, item: str | None) -> None:
    """Prints what each feature of the context changes in the prediction.

    Args:
      query: The query.
      item: The item of a query of items whose prediction is explained.

    Raises:
      UserError: the query is not one that the model answers.
    """
    explained: Explanation | TextExplanation
    word = ""
    if isinstance(query, Query):
        predictor = query_flags.load_for_sets("give --text")
        assert item is not None
        explained = predictor.explain(query.items, query.context, item)
    else:
        texts = query_flags.load_for_texts("give --items")
        explained = texts.explain(query.text, query.context, query.text_b, query.words)
        if explained.word is not None:
            word, _, _ = texts.check(query).words[explained.word]
    if query_flags.JSON.value:
        print(json.dumps(explained.to_dict()))
    else:
        print(format_features(explained, query.context or {}, word))


def format_features(
    explained: Explanation | TextExplanation, context: Mapping[str, Any], word: str = ""
) -> str:
    """The prediction, a table of the features that were given, and notes.

    Args:
      explained: The explanation.
      context: The context as it was given.
      word: The word that has the tag, where a tag is explained.
    """
    notes = query_flags.context_notes(explained.unknown_context, explained.missing_context)
    if isinstance(explained, Explanation):
        notes = query_flags.item_notes(explained.unknown_items, explained.cut) + notes
    else:
        notes += query_flags.text_notes(explained.cut)
    if not explained.uses_context:
        notes.append("the model does not read the context, so that no feature changes it")
    elif explained.outside_training:
        notes.append(
            "training dropped no features, so that a context without one may be unlike any "
            "that the model has seen; take the changes as hints"
        )
    parts = (_prediction(explained, word), _changes(explained, context), "\n".join(notes))
    return "\n\n".join(part for part in parts if part)


def _prediction(explained: Explanation | TextExplanation, word: str) -> str:
    """What was predicted, with its probability; a number has none."""
    head = "prediction"
    if isinstance(explained, Explanation):
        head, prediction = "item", explained.item
    elif isinstance(explained.prediction, float):
        return str(np.float32(explained.prediction))
    else:
        prediction = explained.prediction or "(none)"
    probability = explained.probability
    cells = [prediction, "" if probability is None else f"{probability:.2%}"]
    if word:
        return align([["word", "tag", "probability"], [word, *cells]])
    return align([[head, "probability"], cells])


def _changes(explained: Explanation | TextExplanation, context: Mapping[str, Any]) -> str:
    """What each feature that was given changes, the largest change first."""
    of_number = explained.log_odds is None
    form = "+.4g" if of_number else "+.3f"
    rows = [
        [name, _value(context[name]), format(change, form)]
        for name, change in sorted(explained.features.items(), key=lambda pair: -abs(pair[1]))
        if name not in explained.missing_context
    ]
    head = ["feature", "value", "change" if of_number else "change in log-odds"]
    return align([head, *rows]) if rows else ""


def _value(value: Any) -> str:
    """A feature's value as a person reads it, a long one without its end."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
