"""Metrics of labels that are no means over queries.

Legend: Q queries.
"""

import numpy as np

BINS = 15  # Guo et al. (2017), On Calibration of Modern Neural Networks.


def macro_f1(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> float:
    """The mean of F1 = 2 TP / (2 TP + FP + FN) over labels that occur or are predicted.

    Args:
      labels: `int [Q]`, from 0.
      predictions: `int [Q]`.
      weights: `float64 [Q]`, how often each query counts.
    """
    size = int(max(labels.max(), predictions.max())) + 1
    hits = np.bincount(labels, weights * (labels == predictions), size)
    # TP + FN and TP + FP.
    occurring = np.bincount(labels, weights, size)
    total = occurring + np.bincount(predictions, weights, size)
    return float((2 * hits[total > 0] / total[total > 0]).mean())


def expected_calibration_error(
    correct: np.ndarray, probability: np.ndarray, weights: np.ndarray
) -> float:
    """How far a prediction's probability is from how often it is right, in 15 equal bins.

    It is sum_b n_b / Q |accuracy_b - mean probability_b| (Guo et al., 2017, equation 3).

    Args:
      correct: `bool [Q]`.
      probability: `float64 [Q]`, of the predicted label.
      weights: `float64 [Q]`, how often each query counts.
    """
    bins = np.clip(np.ceil(probability * BINS).astype(int) - 1, 0, BINS - 1)
    gap = np.bincount(bins, weights * (correct - probability), BINS)
    return float(np.abs(gap).sum() / weights.sum())
