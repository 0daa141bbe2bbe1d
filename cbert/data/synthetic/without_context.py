"""The Bayes-optimal predictions of the stylist data for a model that does not see the context.

It sees the other articles R of an outfit, and the outfit's length n, and averages the process
over customers. At one occasion o, the types, the theme and the articles of an outfit depend on
different features, which are independent of each other, so that an outfit S has

    P(S | n) = sum_o P(o) E[prod_{t in S} w_t / e_n(w)]
                          sum_z E[P(z | u)] E[prod_{a in S} P(a | t, z, u)]

and P(a | R) = P(R + a | n) / sum_b P(R + b | n). Each expectation is a mean over customers who
are drawn at that occasion. They are drawn in independent blocks, over which the jackknife
(Efron, 1982) corrects the bias of the logarithm and measures the error that is left.

Legend: M outfits of n items, N customers, A articles that occur, Z themes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from cbert import progress
from cbert.data.synthetic.process import GenerativeProcess, elementary_symmetric

Customers = Sequence[dict[str, Any]]
# Each occasion's probability, and customers who ask for an outfit at it.
Block = Sequence[tuple[float, Customers]]
_OUTFITS, _CUSTOMERS = 256, 64  # So many are multiplied at once.


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What is predicted without the context.

    Attributes:
      log_probability: For each outfit `float64 [n]`, nats, each item masked in turn.
      error: The standard error of their mean over draws of the customers.
    """

    log_probability: list[np.ndarray]
    error: float


def predict(
    process: GenerativeProcess, outfits: Sequence[np.ndarray], blocks: Sequence[Block]
) -> Predictions:
    """Predicts every item from the other items of its outfit.

    Args:
      process: The process that made the outfits.
      outfits: `int [n]` articles each.
      blocks: Independent draws of as many customers each; a single one leaves bias and error
        unknown, and the error is NaN.
    """
    lengths = np.array([len(items) for items in outfits])
    log_probability = [np.zeros(0)] * len(outfits)
    sums = np.zeros(len(blocks))  # Of the log-probabilities that the other blocks give.
    rows = [np.nonzero(lengths == length)[0].tolist() for length in np.unique(lengths)]
    occurring = _Occurring(process, np.unique(np.concatenate(outfits)))
    batches = [occurring.positions(np.stack([outfits[row] for row in some])) for some in rows]
    with progress.bar(blocks, desc="averaging over customers", unit=" blocks") as bar:
        evidence = [_evidence(occurring, batches, block) for block in bar]
        for some, of_blocks in zip(rows, zip(*evidence, strict=True), strict=True):
            numerators, denominators = map(np.stack, zip(*of_blocks, strict=True))
            every, without_one = _estimates(numerators[:, :, None], denominators)
            sums += without_one.sum(axis=(1, 2))
            for row, values in zip(some, every, strict=True):
                log_probability[row] = values
        count = len(blocks)
        means = sums / lengths.sum()
        error = float(np.sqrt((count - 1) * means.var())) if count > 1 else float("nan")
        bar.set_postfix_str(f"the error left in their mean is {error:.4f} nats")
    return Predictions(log_probability, error)


def _estimates(
    numerators: np.ndarray, denominators: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probabilities without bias `[M, n]`, and those without each block `[., M, n]`.

    A log-probability that the correction makes positive is 0.
    """
    count = len(numerators)
    every = np.log(numerators.sum(axis=0) / denominators.sum(axis=0))
    if count == 1:
        return every, every[None]
    without_one = np.log(
        (numerators.sum(axis=0) - numerators) / (denominators.sum(axis=0) - denominators)
    )
    corrected = count * every - (count - 1) * without_one.mean(axis=0)
    return np.minimum(corrected, 0.0), without_one


class _Occurring:
    """The articles that occur in some outfits `[A]`, and their probabilities.

    The probabilities are relative to typical ones, so that their products stay within float32.
    """

    def __init__(self, process: GenerativeProcess, articles: np.ndarray) -> None:
        self.process, self._articles = process, articles
        self.types = process.catalogue.types[articles]
        self.typical = process.articles({}, articles).mean(axis=0)

    def positions(self, items: np.ndarray) -> np.ndarray:
        """Where articles stand among those that occur, for any shape."""
        return np.searchsorted(self._articles, items)

    def ratios(self, customers: Customers) -> np.ndarray:
        """P(a | t, z, u) over what is typical, `float32 [A, N Z]`."""
        probabilities = [self.process.articles(one, self._articles) for one in customers]
        ratios = np.concatenate(probabilities) / self.typical
        return np.ascontiguousarray(ratios.T, np.float32)


def _evidence(
    occurring: _Occurring, batches: Sequence[np.ndarray], block: Block
) -> list[tuple[np.ndarray, np.ndarray]]:
    """P(S | n) `[M]`, and for each item the sum over what may stand in its place `[M, n]`.

    There is one pair for each batch of outfits of one length, `int [M, n]` positions.
    """
    process = occurring.process
    sums = _zeros(batches)
    for probability, customers in block:
        themes = np.mean([process.theme_probabilities(one) for one in customers], axis=0)
        of_articles = _of_articles(occurring, batches, customers, themes)
        for items, (whole, others), by_article in zip(batches, sums, of_articles, strict=True):
            by_type = _of_types(process, occurring.types[items], customers)
            whole += probability * by_type[0] * by_article[0]
            others += probability * by_type[1] * by_article[1]
    return [
        (whole, others / occurring.typical[items])
        for items, (whole, others) in zip(batches, sums, strict=True)
    ]


def _zeros(batches: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.zeros(len(items)), np.zeros(items.shape)) for items in batches]


def _of_types(
    process: GenerativeProcess, types: np.ndarray, customers: Customers
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of prod_{t in S} w_t / e_n(w), and its sum over the type of each masked item."""
    length = types.shape[1]
    whole, others = np.zeros(len(types)), np.zeros(types.shape)
    for customer in customers:
        weights = process.type_weights(customer)
        own = weights[types]
        product = own.prod(axis=1) / elementary_symmetric(weights, length)[0, length]
        possible = own + (weights.sum() - own.sum(axis=1))[:, None]
        whole += product
        others += product[:, None] / own * possible
    return whole / len(customers), others / len(customers)


def _of_articles(
    occurring: _Occurring,
    batches: Sequence[np.ndarray],
    customers: Customers,
    themes: np.ndarray,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The mean of sum_z P(z) prod_a P(a | t, z, u) / typical, and that without each item."""
    sums = _zeros(batches)
    for first in range(0, len(customers), _CUSTOMERS):
        some = customers[first : first + _CUSTOMERS]
        ratios = occurring.ratios(some)
        weights = np.tile(themes / len(customers), len(some)).astype(np.float32)
        for items, (whole, others) in zip(batches, sums, strict=True):
            for start in range(0, len(items), _OUTFITS):
                inside = slice(start, start + _OUTFITS)
                own = ratios[items[inside]]  # [M, n, N Z]
                product = own.prod(axis=1) * weights
                whole[inside] += product.sum(axis=1)
                others[inside] += (product[:, None] / own).sum(axis=2)
    return sums
