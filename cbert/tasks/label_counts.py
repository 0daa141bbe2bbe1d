"""How often each label is right, missed or predicted wrongly, and which is taken for which.

Legend: Q queries, T labels.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from cbert.spans import spans
from cbert.tasks.label_metrics import fraction

UNKNOWN = "(unknown)"  # All labels together that training lacks.


@dataclasses.dataclass(frozen=True)
class LabelCounts:
    """Counts of the T labels that occur or are predicted, the most frequent first.

    Attributes:
      names: The labels.
      correct: `int64 [T]`, how often each is predicted where it is true.
      predicted: `int64 [T]`, how often it is predicted.
      support: `int64 [T]`, how often it is true.
      confusions: A true label and the one predicted in its place to how often that is so, the
        most frequent first; None for a task where no label takes the place of another.
    """

    names: tuple[str, ...]
    correct: np.ndarray
    predicted: np.ndarray
    support: np.ndarray
    confusions: dict[tuple[str, str], int] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def precision(self) -> np.ndarray:
        """`float64 [T]`, 0 for a label that is never predicted."""
        return fraction(self.correct, self.predicted)

    @property
    def recall(self) -> np.ndarray:
        """`float64 [T]`, 0 for a label that does not occur."""
        return fraction(self.correct, self.support)

    @property
    def f1(self) -> np.ndarray:
        """`float64 [T]`, whose mean is the macro-F1."""
        return fraction(2 * self.correct, self.predicted + self.support)


def ordered(
    names: Sequence[str],
    counts: Iterable[np.ndarray],
    confusions: dict[tuple[str, str], int] | None = None,
) -> LabelCounts:
    """The counts of some labels, without those that neither occur nor are predicted.

    Args:
      names: Labels; of two that are equally frequent, the earlier one comes first.
      counts: How often each is correct, predicted and true, `int64` each.
      confusions: See `LabelCounts`.
    """
    correct, predicted, support = counts
    order = np.argsort(-support, kind="stable")
    order = order[(predicted + support)[order] > 0]
    kept = tuple(names[code] for code in order)
    return LabelCounts(kept, correct[order], predicted[order], support[order], confusions)


def of_labels(names: Sequence[str], labels: np.ndarray, predictions: np.ndarray) -> LabelCounts:
    """The counts of single labels, with their confusions.

    Args:
      names: The labels by their codes.
      labels: `int [Q]`, the true codes.
      predictions: `int [Q]`, the predicted codes.
    """
    right, size = labels == predictions, len(names)
    codes = labels[right], predictions, labels
    pairs = np.stack([labels, predictions])[:, ~right]
    wrong, counts = np.unique(pairs, axis=1, return_counts=True)
    confusions = {
        (names[wrong[0, n]], names[wrong[1, n]]): int(counts[n])
        for n in np.argsort(-counts, kind="stable")
    }
    return ordered(names, [np.bincount(each, minlength=size) for each in codes], confusions)


def of_spans(truth: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> LabelCounts:
    """The counts of the types of spans that the true and the predicted tags of sentences mark.

    A span is correct where type, first and last word are.
    """
    counters: list[collections.Counter] = [collections.Counter() for _ in range(3)]
    for true_tags, tags in zip(truth, predicted, strict=True):
        true, own = spans(true_tags), spans(tags)
        for counter, marked in zip(counters, (true & own, own, true), strict=True):
            counter.update(kind for kind, _, _ in marked)
    names = sorted(counters[1] | counters[2])
    counts = (np.array([counter[name] for name in names], int) for counter in counters)
    return ordered(names, counts)
