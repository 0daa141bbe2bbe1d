"""How many of the spans that BIO tags mark are right, as conlleval and seqeval count them."""

from collections.abc import Sequence

import numpy as np

from cbert.spans import spans
from cbert.tasks.label_metrics import fraction


def count(truth: Sequence[str], predicted: Sequence[str]) -> tuple[int, int, int]:
    """The spans of a sentence: those predicted exactly, all predicted, and all true ones."""
    true_spans, predicted_spans = spans(truth), spans(predicted)
    return len(true_spans & predicted_spans), len(predicted_spans), len(true_spans)


def scores(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall and F1 over all spans; 0 where there are none to divide by.

    Args:
      sums: `float64 [..., 3]`, sums over sentences of what `count` returns.
    """
    correct, predicted, true = np.moveaxis(sums, -1, 0)
    return {
        "span_precision": fraction(correct, predicted),
        "span_recall": fraction(correct, true),
        "span_f1": fraction(2 * correct, predicted + true),
    }
