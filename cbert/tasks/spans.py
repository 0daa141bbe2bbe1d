"""How many of the spans that BIO tags mark are right, as conlleval and seqeval count them."""

from collections.abc import Sequence

import numpy as np

from cbert.spans import spans


def count(truth: Sequence[str], predicted: Sequence[str]) -> tuple[int, int, int]:
    """The spans of a sentence: those predicted exactly, all predicted, and all true ones."""
    true_spans, predicted_spans = spans(truth), spans(predicted)
    return len(true_spans & predicted_spans), len(predicted_spans), len(true_spans)


def scores(counts: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Precision, recall and F1 over all spans; 0 where there are none to divide by.

    Args:
      counts: `int [Q, 3]`, what `count` returns of each sentence.
      weights: `float64 [Q]`, how often each sentence counts.
    """
    correct, predicted, true = map(float, weights @ counts)
    return {
        "span_precision": correct / predicted if predicted else 0.0,
        "span_recall": correct / true if true else 0.0,
        "span_f1": 2 * correct / (predicted + true) if predicted + true else 0.0,
    }
