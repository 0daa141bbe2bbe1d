"""Spans of words that BIO tags mark, and how many of them are right.

The rules are those of conlleval and of the package seqeval: an `I-x` after another type or
after `O` begins a span, too.
"""

from collections.abc import Sequence

import numpy as np

from cbert.tasks.label_metrics import fraction

OUTSIDE = "O"
Span = tuple[str, int, int]


def spans(tags: Sequence[str]) -> set[Span]:
    """Type, first and last word of each span.

    A tag is `O`, `B-x`, `I-x`, or a type alone, which is read as `I-` of that type.
    """
    marked: set[Span] = set()
    first, kind = 0, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        begins, name = _parts(tag)
        if kind and (begins or name != kind):
            marked.add((kind, first, index - 1))
            kind = ""
        if name and not kind:
            first, kind = index, name
    return marked


def _parts(tag: str) -> tuple[bool, str]:
    """Whether the tag begins a span in any case, and the span's type, empty outside."""
    if tag == OUTSIDE:
        return False, ""
    prefix, dash, name = tag.partition("-")
    if dash and prefix in ("B", "I"):
        return prefix == "B", name or "_"
    return False, tag


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
