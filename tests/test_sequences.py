"""What is asked about sequences alone: their last items, and the baseline of neighbours."""

import itertools

import numpy as np
import pytest

from cbert.evaluation import bigram
from cbert.tasks.masked_queries import query_last
from tests.test_metrics import split


def test_the_last_item_is_asked_for_or_skipped():
    """The last one is unknown in the second example, whose item before it is not asked."""
    last = query_last(split([["a", "b", "a"], ["b", "x"], ["c"]], [None] * 3))
    assert last.rows.tolist() == [0, 2]
    assert last.positions.tolist() == [2, 0]
    assert last.items.tolist() == [0, 2]
    assert last.skipped == 1


def test_the_bigrams_of_sequences_by_hand():
    """The ends are neighbours: a, x, b has the pairs begin a, a x, x b, and b end."""
    train = split([["a", "b"], ["a", "c"], ["a", "x", "b"]], [None] * 3)
    asked = split([["a", "b"], ["c"]], [None] * 2)
    queries = query_last(asked)
    log_probability, rank = bigram.of_sequences(train, None, asked, queries, 3)
    counts = np.array([3, 2, 1, 1, 3, 3]) + 0.5  # a, b, c, unknown, begin, end
    unigram = counts / counts.sum()
    pairs = np.zeros((6, 6))
    for tokens in ([4, 0, 1, 5], [4, 0, 2, 5], [4, 0, 3, 1, 5]):
        for left, right in itertools.pairwise(tokens):
            pairs[left, right] += 1
    x = bigram.INTERPOLATIONS[2]
    totals = pairs.sum(axis=1, keepdims=True)
    chain = np.where(totals, x * pairs / np.maximum(totals, 1) + (1 - x) * unigram, unigram)
    for number, (left, item) in enumerate([(0, 1), (4, 2)]):
        joint = chain[left, :3] * chain[:3, 5]
        assert log_probability[number] == pytest.approx(
            np.log(joint[item] / joint.sum()), rel=1e-4
        )
        assert rank[number] == (joint >= joint[item] * (1 - 1e-6)).sum()
