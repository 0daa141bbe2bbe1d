"""The generative process of the stylist data, and the Bayes-optimal predictions it implies.

For a customer u, as far as the record shows them, an outfit is drawn as

    n          ~ LENGTHS with LENGTH_PROBABILITIES
    S | n, u   = prod_{t in S} w_t(u) / e_n(w(u)),  e_n the elementary symmetric polynomial
    z | u      ~ themes, tilted by preferred styles and the occasion
    a | t, z, u = m_z(a) f_u(a) / sum over the articles of type t

Given the other articles R of an outfit and its length, the masked article a of type t has

    P(a | R, u) = w_t / sum_{t' not in R} w_t'  *  sum_z P(z | R, u) P(a | t, z, u)

where e_n cancels and the theme is summed out: P(z | R, u) ~ P(z | u) prod_{b in R} P(b | z, u).
The logarithm of f_u is a sum over features, but for the colours of an occasion, which depend on
the age; or it is made of interactions of three features (`interactions.py`).

Taste depends on an article's colour, brand and price alone, which are its *cell*: the totals of
types are sums over cells, so that a customer costs little even where the catalogue is large.

Legend: V articles, A some of them, C cells, T types, Z themes, n items.
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from cbert.data.random_streams import stream
from cbert.data.synthetic import catalogue as words
from cbert.data.synthetic.catalogue import Catalogue
from cbert.data.synthetic.interactions import Interactions

LENGTHS = (4, 5, 6, 7, 8)
LENGTH_PROBABILITIES = (0.45, 0.27, 0.16, 0.07, 0.05)
THEMES = 8

# Strengths, as powers of e.
THEME, THEME_GROWTH = 3.0, 0.37
PREFERRED_STYLE, PREFERRED_COLOUR, PREFERRED_BRAND = 1.5, 2.0, 2.0
MOOD_COLOUR, HOME_BRAND, PRICE_STEP, NO_GO = 2.0, 0.7, 1.2, -4.0
AGE_BANDS = (30, 45)


class GenerativeProcess:
    """The process for one catalogue; all its tables are drawn from the seed.

    Args:
      catalogue: The articles.
      seed: Decides the tables, which are the same with interactions and without.
      interactions: Whether tastes are made of interactions of three features.
    """

    def __init__(self, catalogue: Catalogue, seed: int = 0, interactions: bool = False) -> None:
        self.catalogue = catalogue
        self._interactions = Interactions(seed) if interactions else None
        self._bounds = np.searchsorted(
            catalogue.types, np.arange(len(words.TYPES) + 1)
        ).tolist()
        random = stream("generative process", seed)
        colours, styles = len(words.COLOURS), len(words.STYLES)
        self._theme_style = np.arange(THEMES) % styles
        palette = np.stack([random.permutation(colours) < 3 for _ in range(THEMES)])
        theme = THEME + THEME_GROWTH * words.growth(len(catalogue.types))
        fits = (catalogue.styles == self._theme_style[:, None]) * 1.0
        fits += palette[:, catalogue.colours]
        self._themed = catalogue.popularity * np.exp(theme * fits)
        shape = (colours, len(words.BRANDS), len(words.PRICES))
        parts = (catalogue.colours, catalogue.brands, catalogue.prices)
        self._cells = np.ravel_multi_index(parts, shape)
        size = len(words.TYPES) * int(np.prod(shape))
        where = np.ravel_multi_index((catalogue.types, *parts), (len(words.TYPES), *shape))
        masses = [np.bincount(where, themed, size) for themed in self._themed]
        self._masses = np.reshape(masses, (THEMES, len(words.TYPES), -1))  # [Z, T, C]
        self._type_base = random.normal(0, 0.5, len(words.TYPES))
        self._type_gender = random.normal(0, 0.8, (len(words.GENDERS), len(words.TYPES)))
        self._type_occasion = random.normal(0, 0.8, (len(words.OCCASIONS), len(words.TYPES)))
        self._theme_occasion = random.normal(0, 0.8, (len(words.OCCASIONS), THEMES))
        bands = (len(words.OCCASIONS), len(AGE_BANDS) + 1)
        self._mood = np.stack([random.permutation(colours) < 2 for _ in range(np.prod(bands))])
        self._mood = self._mood.reshape(*bands, colours)
        self._home = np.stack(
            [random.permutation(len(words.BRANDS)) < 4 for _ in words.COUNTRIES]
        )

    def type_weights(self, context: dict[str, Any]) -> np.ndarray:
        """w(u) `[T]`."""
        logits = self._type_base.copy()
        if "gender" in context:
            logits += self._type_gender[words.GENDERS.index(context["gender"])]
        if "occasion" in context:
            logits += self._type_occasion[words.OCCASIONS.index(context["occasion"])]
        logits += NO_GO * _contains(context.get("no_go_types", ()), words.TYPES)
        return np.exp(logits)

    def theme_probabilities(self, context: dict[str, Any]) -> np.ndarray:
        """P(z | u) `[Z]`."""
        preferred = _contains(context.get("styles", ()), words.STYLES)
        logits = PREFERRED_STYLE * preferred[self._theme_style]
        if "occasion" in context:
            logits = logits + self._theme_occasion[words.OCCASIONS.index(context["occasion"])]
        weights = np.exp(logits)
        return weights / weights.sum()

    def taste(self, context: dict[str, Any]) -> np.ndarray:
        """f_u `[C]`, how much the customer likes the articles of each cell, in any theme."""
        if self._interactions:
            context = self._interactions.exchanged(context)
        colours = PREFERRED_COLOUR * _contains(context.get("colours", ()), words.COLOURS)
        if "occasion" in context and "age" in context:
            band = np.searchsorted(AGE_BANDS, context["age"], side="right")
            mood = self._mood[words.OCCASIONS.index(context["occasion"]), band]
            colours = colours + MOOD_COLOUR * mood
        brands = PREFERRED_BRAND * _contains(context.get("brands", ()), words.BRANDS)
        if "country" in context:
            brands = brands + HOME_BRAND * self._home[words.COUNTRIES.index(context["country"])]
        prices = np.zeros(len(words.PRICES))
        if "price" in context:
            wanted = words.PRICES.index(context["price"])
            prices = -PRICE_STEP * np.abs(np.arange(len(prices)) - wanted)
        both = np.exp(colours)[:, None] * np.exp(brands)
        return (both[:, :, None] * np.exp(prices)).ravel()

    def articles(self, context: dict[str, Any], some: np.ndarray) -> np.ndarray:
        """P(a | t, z, u) of some articles `[A]`, each of its type t, `[Z, A]`."""
        taste = self.taste(context)
        totals = self._masses @ taste
        fitting = self._themed[:, some] * taste[self._cells[some]]
        return fitting / totals[:, self.catalogue.types[some]]

    def draw(
        self, random: np.random.Generator, contexts: list[dict[str, Any]]
    ) -> list[np.ndarray]:
        """One outfit a customer: `int [n]` articles in random order."""
        weights = np.array([self.type_weights(context) for context in contexts])
        tables = elementary_symmetric(weights, LENGTHS[-1])
        drawn = []
        for index, context in enumerate(contexts):
            length = LENGTHS[_draw_index(random, LENGTH_PROBABILITIES)]
            types = draw_subset(random, weights[index], tables[index], length)
            theme = _draw_index(random, self.theme_probabilities(context))
            taste = self.taste(context)
            articles = [
                self._draw_article(point, kind, theme, taste)
                for point, kind in zip(random.random(length), types, strict=True)
            ]
            drawn.append(random.permutation(articles))
        return drawn

    def _draw_article(self, point: float, kind: int, theme: int, taste: np.ndarray) -> int:
        """The article of a type to which a point in [0, 1) belongs."""
        inside = slice(*self._bounds[kind : kind + 2])
        cumulative = np.cumsum(self._themed[theme, inside] * taste[self._cells[inside]])
        position = np.searchsorted(cumulative, point * cumulative[-1], side="right")
        return int(inside.start + min(position, len(cumulative) - 1))

    def conditional(self, items: np.ndarray, context: dict[str, Any]) -> np.ndarray:
        """P(a | the other items, u) `[n, V]`, one row for each item masked in turn."""
        types = self.catalogue.types[items]
        fitting = self.articles(context, items)
        themes = np.log(self.theme_probabilities(context)) + _sum_of_others(np.log(fitting).T)
        themes = np.exp(themes - themes.max(axis=1, keepdims=True))
        themes /= themes.sum(axis=1, keepdims=True)
        weights = np.tile(self.type_weights(context), (len(items), 1))
        for index in range(len(items)):
            weights[index, np.delete(types, index)] = 0.0
        weights /= weights.sum(axis=1, keepdims=True)
        taste = self.taste(context)
        factors = themes[:, :, None] * weights[:, None] / (self._masses @ taste)  # [n, Z, T]
        conditional = np.empty((len(items), len(self._cells)))
        for kind, (start, end) in enumerate(itertools.pairwise(self._bounds)):
            mixed = factors[:, :, kind] @ self._themed[:, start:end]
            conditional[:, start:end] = mixed * taste[self._cells[start:end]]
        return conditional

    def reference(self, items: np.ndarray, context: dict[str, Any]) -> dict[str, list[float]]:
        """The Bayes-optimal log-probability (nats) and rank of each item, ties against it."""
        probabilities = self.conditional(items, context)
        own = probabilities[np.arange(len(items)), items]
        ranks = (probabilities >= own[:, None]).sum(axis=1)
        return {"log_probability": np.log(own).tolist(), "rank": ranks.tolist()}


def _contains(chosen: Any, values: tuple[str, ...]) -> np.ndarray:
    return np.array([1.0 if value in chosen else 0.0 for value in values])


def _draw_index(random: np.random.Generator, probabilities: npt.ArrayLike) -> int:
    """The index that `random.choice` draws, in a tenth of its time."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative / cumulative[-1], random.random(), side="right"))


def _sum_of_others(rows: np.ndarray) -> np.ndarray:
    """`[n, Z]`: for each row the sum of all other rows."""
    return rows.sum(axis=0) - rows


def elementary_symmetric(weights: np.ndarray, order: int) -> np.ndarray:
    """e_0 to e_order of every suffix of the weights `[..., T]`, `[..., T + 1, order + 1]`."""
    *batch, size = weights.shape
    table = np.zeros((*batch, size + 1, order + 1))
    table[..., 0] = 1.0
    for first in range(size - 1, -1, -1):
        rest = table[..., first + 1, :]
        table[..., first, 1:] = rest[..., 1:] + weights[..., first, None] * rest[..., :-1]
    return table


def draw_subset(
    random: np.random.Generator, weights: np.ndarray, table: np.ndarray, size: int
) -> list[int]:
    """Draws S with P(S) = prod w / e_size, one element after the other.

    Args:
      random: Decides the subset.
      weights: w `[T]`.
      table: Their `elementary_symmetric` of at least that order.
      size: The number of elements of S.
    """
    chosen: list[int] = []
    rows = table.tolist()
    points = random.random(len(weights)).tolist()
    for index, weight in enumerate(weights.tolist()):
        left = size - len(chosen)
        if left and points[index] * rows[index][left] < weight * rows[index + 1][left - 1]:
            chosen.append(index)
    return chosen
