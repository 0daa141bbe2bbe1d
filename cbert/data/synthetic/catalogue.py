"""The words of the stylist data, and the catalogue of its articles.

Legend: V articles.
"""

import dataclasses
import math

import numpy as np

from cbert.data.random_streams import stream
from cbert.errors import UserError

TYPES = (
    "t-shirt",
    "shirt",
    "blouse",
    "sweater",
    "jacket",
    "coat",
    "jeans",
    "trousers",
    "skirt",
    "dress",
    "shorts",
    "sneakers",
    "boots",
    "heels",
    "bag",
    "hat",
    "scarf",
    "belt",
)
COLOURS = ("black", "white", "grey", "navy", "blue", "green", "red", "pink", "beige", "brown")
BRANDS = (
    "Alba",
    "Borea",
    "Corvo",
    "Dune",
    "Elm",
    "Fjord",
    "Gala",
    "Haze",
    "Iris",
    "Juno",
    "Kite",
    "Lumen",
    "Mira",
    "Nord",
    "Opal",
    "Pico",
)
STYLES = ("casual", "classic", "sporty", "street", "romantic", "minimal")
PRICES = ("budget", "middle", "premium", "luxury")
GENDERS = ("female", "male")
COUNTRIES = ("DE", "FR", "GB", "IT", "NL", "PL", "SE", "ES")
OCCASIONS = ("work", "party", "wedding", "holiday", "sport", "weekend")
SIZES = ("XS", "S", "M", "L", "XL", "XXL")

TAIL, TAIL_GROWTH = 1.4, 0.037  # The exponent of popularity, and what `growth` adds to it.
SMALL = 500


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """The articles, sorted by type: codes `int [V]`, `popularity` `float [V]`, and names."""

    types: np.ndarray
    colours: np.ndarray
    brands: np.ndarray
    styles: np.ndarray
    prices: np.ndarray
    popularity: np.ndarray
    names: tuple[str, ...]


def growth(articles: int) -> float:
    """The logarithm of the size of a catalogue over `SMALL`; 0 for small ones.

    With it popularity falls faster and themes hold tighter: otherwise the outfits of a large
    catalogue would be far harder to complete than the paper's.
    """
    return math.log(max(articles / SMALL, 1.0))


def make_catalogue(articles: int, seed: int = 0) -> Catalogue:
    """Draws a catalogue; within a type, popularity falls like a power of the rank.

    Raises `UserError` when it is too small for every type.
    """
    if articles < 4 * len(TYPES):
        raise UserError(f"articles is {articles}; it must be at least {4 * len(TYPES)}")
    random = stream("catalogue", seed, articles)
    types = np.sort(np.arange(articles) % len(TYPES))
    brands = random.integers(len(BRANDS), size=articles)
    home_style = random.integers(len(STYLES), size=len(BRANDS))
    home_price = random.integers(len(PRICES), size=len(BRANDS))
    own = random.random(articles) < 0.5
    styles = np.where(own, random.integers(len(STYLES), size=articles), home_style[brands])
    shift = random.integers(-1, 2, size=articles)
    prices = np.clip(home_price[brands] + shift, 0, len(PRICES) - 1)
    colours = random.integers(len(COLOURS), size=articles)
    rank = np.concatenate([random.permutation(n) for n in np.bincount(types)])
    names = tuple(
        f"{COLOURS[colour]} {TYPES[kind]}, {BRANDS[brand]}, {STYLES[style]}, "
        f"{PRICES[price]}, no. {number}"
        for number, (colour, kind, brand, style, price) in enumerate(
            zip(colours, types, brands, styles, prices, strict=True)
        )
    )
    popularity = (rank + 2.0) ** -(TAIL + TAIL_GROWTH * growth(articles))
    return Catalogue(types, colours, brands, styles, prices, popularity, names)
