"""Metrics of labels that are no means over queries.

Legend: Q queries, T labels.
"""

import numpy as np
import scipy.sparse

from cbert.tasks.metric import CorpusMetrics, Metric, Ranked, without_sums

CALIBRATION_ERROR = Metric(
    "calibration_error", "min", "calibration error", percent=True, judges_constants=False
)
BINS = 15  # Guo et al. (2017), On Calibration of Modern Neural Networks.


def fraction(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, 0 where the whole is 0."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), 0.0)


def macro_f1(labels: np.ndarray, predictions: np.ndarray) -> CorpusMetrics:
    """The mean of F1 = 2 TP / (2 TP + FP + FN) over labels that occur or are predicted.

    Args:
      labels: `int [Q]`, from 0.
      predictions: `int [Q]`.
    """
    size = int(max(labels.max(), predictions.max())) + 1
    hit = labels == predictions

    def indicator(values: np.ndarray, codes: np.ndarray) -> scipy.sparse.coo_array:
        rows = np.arange(len(codes))
        return scipy.sparse.coo_array((values, (rows, codes)), shape=(len(codes), size))

    # TP, and TP + FN plus TP + FP.
    ones = np.ones(len(labels))
    total = indicator(ones, labels) + indicator(ones, predictions)
    statistics = scipy.sparse.hstack([indicator(hit * 1.0, labels), total], format="csr")
    return CorpusMetrics(statistics, lambda sums: {"macro_f1": mean_f1(*np.split(sums, 2, -1))})


def mean_f1(hits: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The mean of 2 TP / (2 TP + FP + FN) over labels.

    Args:
      hits: TP of each label, `float64 [..., T]`.
      total: 2 TP + FP + FN of each label; the labels where it is 0 are left out.
    """
    return fraction(fraction(2 * hits, total).sum(axis=-1), (total > 0).sum(axis=-1))


def calibration_error(correct: np.ndarray, probability: np.ndarray) -> CorpusMetrics:
    """How far probabilities are from how often they are right, in 15 bins of equal width.

    The expected calibration error is sum_b n_b / N |accuracy_b - mean probability_b| (Guo et
    al., 2017, equation 3), where bin b holds the probabilities in ((b - 1) / 15, b / 15].

    Its derivatives are NaN where no bin has predictions that are right and ones that are not:
    then the spread of probabilities alone is seen, and nothing of how much the error varies
    with what turns out to be right.

    Args:
      correct: `bool [Q]` or, for several predictions a query, `[Q, T]`.
      probability: `float64` of the same shape, of what is correct or not.
    """
    right, scores = (one.reshape(len(one), -1) for one in (correct, probability))
    gaps, index = right - scores, bins(scores)

    def ranked(weights: np.ndarray) -> Ranked:
        of_each = np.repeat(weights, right.shape[1])
        counts, hits, summed = reliability(right, scores, of_each)
        total, gap = counts.sum() or 1.0, hits - summed
        value = np.abs(gap).sum() / total
        slopes = (gaps * np.sign(gap)[index] - value).sum(axis=1) / total
        if not ((hits > 0) & (hits < counts)).any():
            slopes[:] = np.nan
        return {CALIBRATION_ERROR.name: (value, slopes)}

    return without_sums(len(gaps), ranked)


def reliability(
    correct: np.ndarray, probability: np.ndarray, weights: np.ndarray | float = 1.0
) -> np.ndarray:
    """Of each bin the predictions, those that are correct, and the sum of probabilities.

    Args:
      correct: As in `calibration_error`.
      probability: The same.
      weights: How often each prediction counts, in the order of the flattened arrays.

    Returns:
      `float64 [3, 15]`.
    """
    index = bins(probability).ravel()
    summed = (np.ones(index.size), correct.ravel(), probability.ravel())
    return np.stack([np.bincount(index, weights * values, BINS) for values in summed])


def bins(probability: np.ndarray) -> np.ndarray:
    """The bin of each probability, from 0."""
    return np.clip(np.ceil(probability * BINS).astype(int) - 1, 0, BINS - 1)
