"""Stylist: synthetic fashion outfits for customers, whose Bayes-optimal predictions are known.

A customer asks for an outfit; a stylist picks its types, a theme that holds it together and,
for each type, an article that suits theme and customer. The generative process (`process.py`)
depends on the customer only through the values that a record shows, so that a missing value is
missing for the Bayes-optimal prediction, too. Which colours are preferred at an occasion
depends on the customer's age; with interactions, every taste depends on three features at once.
"""

import collections
import contextlib
import functools
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

import numpy as np

from cbert import progress
from cbert.data.random_streams import stream
from cbert.data.records import SPLITS, TRAIN, Record
from cbert.data.synthetic import process, without_context
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
    make_catalogue,
)
from cbert.data.synthetic.customers import draw_block, draw_customers
from cbert.errors import UserError
from cbert.schema import SET, Categorical, Feature, MultiValued, Numerical, Schema

AGE_EDGES = tuple(float(age) for age in range(20, 72, 4))
BATCH = 256
MANY = 100_000  # Outfits, from which on starting processes pays.
_AHEAD = 64  # The most batches that the processes draw ahead.
# Held-out outfits that are predicted without their contexts at once, and the customers who are
# drawn for it: so many that the error they leave is small beside that of as many outfits.
AT_ONCE = 2**14
FEWEST_CUSTOMERS, MOST_CUSTOMERS, BLOCKS = 256, 4096, 8

WIDTHS = {
    "age": 64,
    "gender": 32,
    "country": 64,
    "colours": 96,
    "brands": 128,
    "styles": 96,
    "no_go_types": 64,
    "top_size": 48,
    "bottom_size": 48,
    "shoe_size": 32,
    "price": 32,
    "occasion": 32,
}


def sizes(sets: int) -> list[int]:
    """Outfits of train, validation and test for a total: 80, 10 and 10 %."""
    held_out = max(sets // 10, 1)
    return [sets - 2 * held_out, held_out, held_out]


def outfits(
    articles: int, split_sizes: list[int], seed: int = 0, interactions: bool = False
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a stylist data set; held-out ones carry their `reference`.

    Args:
      articles: Size of the catalogue.
      split_sizes: Outfits of train, validation and test.
      seed: Decides catalogue and outfits.
      interactions: Whether tastes are made of interactions of three features (`process.py`).
    """
    if len(split_sizes) != 3 or min(split_sizes) < 1:
        raise UserError(f"split_sets is {split_sizes}; give three counts of at least 1")
    batches = [
        (split, start, min(BATCH, size - start))
        for split, size in zip(SPLITS, split_sizes, strict=True)
        for start in range(0, size, BATCH)
    ]
    bar = progress.bar(desc="styling", total=sum(split_sizes), unit=" outfits")
    draw = functools.partial(_draw_batch, articles, seed, interactions)
    with contextlib.ExitStack() as stack:
        drawn: Iterator[list[dict[str, Any]]] = map(draw, batches)
        if sum(split_sizes) >= MANY:  # Every batch has its own seed: any process may draw it.
            context = multiprocessing.get_context("spawn")
            # Processes start when the first batches are asked for.
            stack.enter_context(_one_thread_a_process())
            pool = stack.enter_context(futures.ProcessPoolExecutor(mp_context=context))
            drawn = _drawn_ahead(pool, draw, batches)
        for rows in _completed(_process(articles, seed, interactions), seed, drawn):
            bar.update(len(rows))
            yield from rows
    bar.close()


def _drawn_ahead(
    pool: futures.Executor,
    draw: Callable[[tuple[str, int, int]], list[dict[str, Any]]],
    batches: list[tuple[str, int, int]],
) -> Iterator[list[dict[str, Any]]]:
    """The batches in their order, drawn by processes that stay a bounded number ahead."""
    remaining = iter(batches)
    pending = collections.deque(
        pool.submit(draw, b) for b in itertools.islice(remaining, _AHEAD)
    )
    while pending:
        rows = pending.popleft().result()
        pending.extend(pool.submit(draw, b) for b in itertools.islice(remaining, 1))
        yield rows


@contextlib.contextmanager
def _one_thread_a_process() -> Iterator[None]:
    """Gives processes that start within it one thread each, so that they do not share cores."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]
        if before is not None:
            os.environ["OPENBLAS_NUM_THREADS"] = before


def _draw_batch(
    articles: int, seed: int, interactions: bool, batch: tuple[str, int, int]
) -> list[dict[str, Any]]:
    """The rows of one batch: split, first row and size."""
    split, start, size = batch
    generative = _process(articles, seed, interactions)
    random = stream("outfits", seed, SPLITS.index(split), start)
    customers = draw_customers(random, size)
    drawn = generative.draw(random, [customer for _, customer in customers])
    rows = []
    for number, ((group, context), items) in enumerate(zip(customers, drawn, strict=True)):
        row = {
            "id": f"{split}-{start + number}",
            "group": f"{split}-{start}-{group}",
            "split": split,
            "items": [generative.catalogue.names[item] for item in items],
            "context": context,
        }
        if split != TRAIN:
            row["reference"] = generative.reference(items, context)
        rows.append(row)
    return rows


def _completed(
    generative: process.GenerativeProcess, seed: int, drawn: Iterator[list[dict[str, Any]]]
) -> Iterator[list[dict[str, Any]]]:
    """Batches of training as they come, and later ones with the optimum without context."""
    held_out: list[dict[str, Any]] = []
    random = stream("customers", seed)
    for rows in drawn:
        if rows[0]["split"] == TRAIN:
            yield rows
            continue
        held_out += rows
        if len(held_out) >= AT_ONCE:
            yield _without_context(generative, random, held_out)
            held_out = []
    if held_out:
        yield _without_context(generative, random, held_out)


def _without_context(
    generative: process.GenerativeProcess,
    random: np.random.Generator,
    rows: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The rows, whose `reference` also says what is optimal without the context."""
    codes = {name: code for code, name in enumerate(generative.catalogue.names)}
    outfits = [np.array([codes[name] for name in row["items"]]) for row in rows]
    count = int(np.clip(len(rows) // 2, FEWEST_CUSTOMERS, MOST_CUSTOMERS))
    blocks = [draw_block(random, count // BLOCKS) for _ in range(BLOCKS)]
    predicted = without_context.predict(generative, outfits, blocks).log_probability
    for row, log_probability in zip(rows, predicted, strict=True):
        row["reference"]["without_context"] = log_probability.tolist()
    return rows


@functools.lru_cache(maxsize=1)
def _process(articles: int, seed: int, interactions: bool) -> process.GenerativeProcess:
    return process.GenerativeProcess(make_catalogue(articles, seed), seed, interactions)


def schema(articles: int, training: Iterable[Record] = (), seed: int = 0) -> Schema:
    """The schema of a stylist data set: the whole catalogue, features 736 wide in all.

    Args:
      articles: Size of the catalogue.
      training: The training split, whose items are counted.
      seed: The seed of the data set.
    """
    names = make_catalogue(articles, seed).names
    counts = dict.fromkeys(names, 0)
    for record in training:
        for item in record.items:
            counts[item] += 1

    def tokens(name: str, values: tuple[str, ...], several: int = 1) -> Feature:
        if several == 1:
            return Categorical(name, WIDTHS[name], values)
        return MultiValued(name, WIDTHS[name], values, several)

    def number(name: str, mean: float, scale: float, edges: tuple[float, ...]) -> Feature:
        return Numerical(name, WIDTHS[name], mean, scale, edges)

    features = (
        number("age", 40.0, 14.0, AGE_EDGES),
        tokens("gender", GENDERS),
        tokens("country", COUNTRIES),
        tokens("colours", COLOURS, 3),
        tokens("brands", BRANDS, 3),
        tokens("styles", STYLES, 2),
        tokens("no_go_types", TYPES, 3),
        tokens("top_size", SIZES),
        tokens("bottom_size", SIZES),
        number("shoe_size", 40.5, 2.5, tuple(float(size) for size in range(36, 47))),
        tokens("price", PRICES),
        tokens("occasion", OCCASIONS),
    )
    return Schema(SET, process.LENGTHS[-1], names, tuple(counts.values()), features)
