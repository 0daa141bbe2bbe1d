"""Average precision: how well probabilities rank, whatever the threshold of a decision.

Legend: Q queries, T labels, P pairs of a query and a label.
"""

import numpy as np

from cbert.tasks.metric import CorpusMetrics, Ranked, without_sums


def average_precisions(
    true: np.ndarray, probability: np.ndarray, missed: np.ndarray
) -> CorpusMetrics:
    """`micro_ap`, of all pairs of a query and a label, and `macro_ap`, the mean over labels.

    Labels that do not occur are left out of the mean. As in F1, those that are not among the T
    are one more label, whose average precision is 0; of the pairs, they are never found.

    Args:
      true: `bool [Q, T]`, whether a query has each label.
      probability: `[Q, T]`, the labels' probabilities.
      missed: `[Q]`, how many labels a query has that are not among the T.
    """

    def ranked(weights: np.ndarray) -> Ranked:
        rows = np.nonzero(weights)[0]
        own, labels, scores = weights[rows], true[rows], probability[rows]
        unknown = own @ missed[rows]
        micro, of_pairs, of_missed = average_precision(
            labels.ravel(), scores.ravel(), np.repeat(own, labels.shape[1]), unknown
        )
        columns = zip(labels.T, scores.T, strict=True)
        each = [average_precision(*column, own) for column in columns]
        occurring = max(np.count_nonzero(own @ labels) + (unknown > 0), 1)
        slopes = np.zeros((2, len(weights)))
        slopes[0, rows] = of_pairs.reshape(labels.shape).sum(axis=1) + of_missed * missed[rows]
        slopes[1, rows] = sum(slope for _, slope, _ in each) / occurring
        macro = sum(value for value, _, _ in each) / occurring
        return {"micro_ap": (micro, slopes[0]), "macro_ap": (macro, slopes[1])}

    return without_sums(len(true), ranked)


def average_precision(
    true: np.ndarray, scores: np.ndarray, weights: np.ndarray, missed: float = 0.0
) -> tuple[float, np.ndarray, float]:
    """AP = sum_k (R_k - R_k-1) P_k, with recall R and precision P at each different score.

    Args:
      true: `bool [P]`.
      scores: `[P]`, the highest first in the ranking; pairs that tie are taken together.
      weights: `float64 [P]`, above 0.
      missed: The weight of true pairs that are nowhere in the ranking.

    Returns:
      AP, 0 where nothing is true; its derivatives by the weights, `[P]`, and by `missed`.
    """
    order = np.argsort(-scores, kind="stable")
    positive, weight = true[order].astype(np.float64), weights[order]
    total = positive @ weight + missed
    if not total:
        return 0.0, np.zeros(len(true)), 0.0
    ends = np.append(np.nonzero(np.diff(scores[order]))[0], len(order) - 1)
    threshold = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
    counts = np.cumsum(weight)[ends]
    found = np.cumsum(weight * positive)[ends]
    precision, gained = found / counts, np.diff(found, prepend=0.0)
    value = float(gained @ precision / total)
    # A pair is counted at its own threshold and at all lower ones.
    lower = np.cumsum((gained / counts)[::-1])[::-1]
    lowered = np.cumsum((gained * precision / counts)[::-1])[::-1]
    slopes = np.empty(len(true))
    slopes[order] = positive * (precision + lower)[threshold] - lowered[threshold]
    slopes -= value * true
    return value, slopes / total, -value / total
