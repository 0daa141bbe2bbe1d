"""The stylist's customers: what a record shows of each, drawn at random."""

import bisect
from typing import Any

import numpy as np

from cbert.data.synthetic.catalogue import (
    BRANDS,
    COLOURS,
    COUNTRIES,
    GENDERS,
    OCCASIONS,
    PRICES,
    SIZES,
    STYLES,
    TYPES,
)
from cbert.data.synthetic.without_context import Block

MISSING = 0.08
PRICES_UP_TO = (0.3, 0.7, 0.9, 1.0)  # How likely a price of at most each level is preferred.


def draw_customers(random: np.random.Generator, count: int) -> list[tuple[int, dict[str, Any]]]:
    """Customers as (number, context); some occur twice, with another occasion."""
    customers: list[tuple[int, dict[str, Any]]] = []
    number = 0
    while len(customers) < count:
        context = _draw_customer(random)
        for _ in range(1 + (random.random() < 0.3)):
            request = dict(context, occasion=OCCASIONS[random.integers(len(OCCASIONS))])
            if random.random() < MISSING:
                del request["occasion"]
            customers.append((number, request))
        number += 1
    return customers[:count]


def draw_block(random: np.random.Generator, count: int) -> Block:
    """About `count` customers, at each occasion and at none as many as are to be expected."""
    block = []
    for occasion in (*OCCASIONS, None):
        known = {} if occasion is None else {"occasion": occasion}
        probability = (1 - MISSING) / len(OCCASIONS) if known else MISSING
        customers = [_draw_customer(random) for _ in range(max(round(probability * count), 1))]
        block.append((probability, [{**customer, **known} for customer in customers]))
    return block


def _draw_customer(random: np.random.Generator) -> dict[str, Any]:
    def several(values: tuple[str, ...], least: int, most: int) -> list[str]:
        count = random.integers(least, most + 1)
        return [values[code] for code in random.choice(len(values), count, replace=False)]

    gender = int(random.random() < 0.4)
    size = _within(random.normal(2 + 0.6 * gender, 1.1), 0, len(SIZES) - 1)
    context = {
        "age": _within(random.normal(40, 14), 18, 80),
        "gender": GENDERS[gender],
        "country": COUNTRIES[random.integers(len(COUNTRIES))],
        "colours": several(COLOURS, 1, 3),
        "brands": several(BRANDS, 0, 3),
        "styles": several(STYLES, 1, 2),
        "no_go_types": several(TYPES, 0, 3),
        "top_size": SIZES[size],
        "bottom_size": SIZES[_within(size + int(random.integers(-1, 2)), 0, len(SIZES) - 1)],
        "shoe_size": round(2 * random.normal(39 + 4 * gender, 1.5)) / 2,
        "price": PRICES[bisect.bisect(PRICES_UP_TO, random.random())],
    }
    return {name: value for name, value in context.items() if random.random() >= MISSING}


def _within(value: float, least: int, most: int) -> int:
    """The value, or the bound beyond which it lies, without its fraction."""
    return int(min(max(value, least), most))
