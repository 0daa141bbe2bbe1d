"""Tastes of the stylist's customers that are made of three features at once.

A customer with interactions has the taste of another context, in which each value is exchanged
for one of the same feature, by a random permutation for each pair of values of two other
features. A feature then says nothing of the taste without both of its partners, but tastes are
about as strong and varied as without interactions.
"""

from typing import Any

from cbert.data.random_streams import stream
from cbert.data.synthetic import catalogue as words

_VALUES = {
    "colours": words.COLOURS,
    "brands": words.BRANDS,
    "price": words.PRICES,
    "country": words.COUNTRIES,
    "occasion": words.OCCASIONS,
}
PARTNERS = {
    "colours": ("occasion", "country"),
    "brands": ("occasion", "country"),
    "price": ("occasion", "country"),
    "country": ("occasion", "price"),
    "occasion": ("country", "price"),
}


class Interactions:
    """The permutations, drawn from the seed: `int [P + 1, Q + 1, n]` for a feature of n values.

    P and Q are the numbers of its partners' values; the last row stands for a missing one.
    """

    def __init__(self, seed: int) -> None:
        random = stream("interactions", seed)
        self._permutations = {}
        for name, partners in PARTNERS.items():
            levels = [len(_VALUES[partner]) + 1 for partner in partners]
            drawn = random.random((*levels, len(_VALUES[name])))
            self._permutations[name] = drawn.argsort(axis=-1)

    def exchanged(self, context: dict[str, Any]) -> dict[str, Any]:
        """The context whose taste the customer has; what is missing stays missing."""
        exchanged = dict(context)
        for name in PARTNERS:
            if name in context:
                exchanged[name] = self._exchange(name, context)
        return exchanged

    def _exchange(self, name: str, context: dict[str, Any]) -> Any:
        first, second = (_level(partner, context) for partner in PARTNERS[name])
        permutation, values = self._permutations[name][first, second], _VALUES[name]
        if isinstance(context[name], str):
            return values[permutation[values.index(context[name])]]
        return [values[permutation[values.index(value)]] for value in context[name]]


def _level(name: str, context: dict[str, Any]) -> int:
    """The code of a feature's value; one that is missing has the last."""
    values = _VALUES[name]
    return values.index(context[name]) if name in context else len(values)
