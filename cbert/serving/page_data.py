"""The data of the page: the features of its form, item names, a set to start from."""

import itertools
from collections.abc import Mapping
from typing import Any

from cbert.errors import UserError
from cbert.inference.base import BasePredictor
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Query
from cbert.schema import Schema
from cbert.serving import messages, reading

EXAMPLE_ITEMS = 5
MAX_WORDS = 16


def shared(models: Mapping[str, BasePredictor]) -> dict[str, Any]:
    """The fields of `messages.Shared`: the models, and the features of the context."""
    schema = models["main"].schema
    return {
        "models": [
            messages.ServedModel.model_validate(
                {
                    "model": name,
                    "method": predictor.method,
                    "step": predictor.step,
                    "shows": reading.shown_by(predictor),
                }
            )
            for name, predictor in models.items()
        ],
        "features": [
            messages.FeatureDescription.model_validate(
                {"name": feature.name, "kind": feature.kind, **feature.form()}
            )
            for feature in schema.features
        ],
    }


def describe(models: Mapping[str, Predictor]) -> messages.Description:
    """The models, and the schema they share; of the items only their number."""
    schema = models["main"].schema
    return messages.Description(
        **shared(models),
        kind=schema.kind,
        max_items=schema.max_items,
        items=len(schema.items),
        example=example(models["main"]),
    )


def average_context(schema: Schema) -> dict[str, Any]:
    """A context to start from; features without an example are missing."""
    examples = {feature.name: feature.example() for feature in schema.features}
    return {name: value for name, value in examples.items() if value is not None}


def example(predictor: Predictor) -> messages.Example:
    """A set to start from: the model's own most probable items for an average context."""
    schema, context = predictor.schema, average_context(predictor.schema)
    items: list[str] = []
    room = predictor.program.lengths[-1] - 1
    while len(items) < min(EXAMPLE_ITEMS, schema.max_items, room, len(schema.items) - 1):
        (predictions,) = predictor.complete_batch([Query(items, context, k=1)])[0].predictions
        items.append(predictions[0].item)
    return messages.Example(items=items, context=context)


class Names:
    """Item names to search, the most frequent first."""

    def __init__(self, schema: Schema) -> None:
        pairs = zip(schema.items, schema.counts, strict=True)
        self._items = sorted(pairs, key=lambda pair: -pair[1])
        self._folded = [name.casefold() for name, _ in self._items]

    def search(self, query: str, limit: int) -> messages.Matches:
        """At most `limit` names that hold every word, those that begin with the query first.

        Raises:
          UserError: the query has too many words.
        """
        query = query.casefold().strip()
        matches = self._matching(query)
        begin: list[int] = []
        others: list[int] = []
        for index in matches:
            if self._folded[index].startswith(query):
                begin.append(index)
                if len(begin) == limit:
                    break
            elif len(others) < limit:
                others.append(index)
        listed = [self._items[index] for index in itertools.islice((*begin, *others), limit)]
        return messages.Matches(
            items=[messages.NamedItem(name=name, count=count) for name, count in listed],
            total=len(matches),
        )

    def _matching(self, query: str) -> list[int] | range:
        """Indices of the names that hold every word."""
        words = sorted(set(query.split()), key=len, reverse=True)
        if len(words) > MAX_WORDS:
            raise UserError(f"query has {len(words)} words; give at most {MAX_WORDS}")
        matches: list[int] | range = range(len(self._folded))
        for word in words:  # The longest comes first, because it leaves the fewest names.
            matches = [index for index in matches if word in self._folded[index]]
        return matches
