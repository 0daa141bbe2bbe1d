"""What the page needs to know: the features of its form, item names, a set to start from."""

from typing import Any

from cbert.schema import Schema
from cbert.serving.predictor import Predictor

EXAMPLE_ITEMS = 5


def describe(models: dict[str, Predictor]) -> dict[str, Any]:
    """The models, and the schema they share, as JSON; of the items only their number."""
    schema = models["main"].schema
    return {
        "models": [
            {"model": name, "method": predictor.method, "step": predictor.step}
            for name, predictor in models.items()
        ],
        "kind": schema.kind,
        "max_items": schema.max_items,
        "items": len(schema.items),
        "features": [
            {"name": feature.name, "kind": feature.kind, **feature.form()}
            for feature in schema.features
        ],
    }


def example(predictor: Predictor) -> dict[str, Any]:
    """A set to start from: what the model itself puts together for an average context."""
    schema = predictor.schema
    examples = {feature.name: feature.example() for feature in schema.features}
    context = {name: value for name, value in examples.items() if value is not None}
    items: list[str] = []
    room = predictor.program.lengths[-1] - 1
    while len(items) < min(EXAMPLE_ITEMS, schema.max_items, room, len(schema.items) - 1):
        (listed,) = predictor.complete(items, context, k=1).predictions
        items.append(listed[0].item)
    return {"items": items, "context": context}


class Names:
    """Item names to search, the most frequent first."""

    def __init__(self, schema: Schema) -> None:
        pairs = zip(schema.items, schema.counts, strict=True)
        self._names = sorted(pairs, key=lambda pair: -pair[1])
        self._folded = [name.casefold() for name, _ in self._names]

    def search(self, query: str, limit: int) -> dict[str, Any]:
        """Names that hold every word of the query, those that begin with it first.

        Returns:
          `items`, at most `limit` of them with their counts in training, and `found`, how
          many there are.
        """
        query = query.casefold().strip()
        words = query.split()
        found = [
            place
            for place, name in enumerate(self._folded)
            if all(word in name for word in words)
        ]
        found.sort(key=lambda place: not self._folded[place].startswith(query))
        listed = [self._names[place] for place in found[:limit]]
        return {
            "items": [{"name": name, "count": count} for name, count in listed],
            "found": len(found),
        }
