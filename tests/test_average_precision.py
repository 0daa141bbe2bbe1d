"""Average precision of labels, by hand, beside scikit-learn's, and its error over groups."""

import numpy as np
import pytest

from cbert.evaluation import metrics
from cbert.tasks.average_precision import average_precision, average_precisions


def test_average_precision_by_hand():
    true = np.array([True, False, True, True])
    value, _, _ = average_precision(true, np.array([0.9, 0.8, 0.3, 0.1]), np.ones(4))
    assert value == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    # The middle two tie, so that both are found at a precision of two thirds.
    tied, _, _ = average_precision(true, np.array([0.9, 0.5, 0.5, 0.1]), np.ones(4))
    assert tied == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    weighted, _, _ = average_precision(true, np.array([9.0, 8, 3, 1]), np.array([1.0, 3, 1, 1]))
    assert weighted == pytest.approx((1 + 2 / 5 + 3 / 6) / 3)
    missed, _, _ = average_precision(true, np.array([9.0, 8, 3, 1]), np.ones(4), missed=1)
    assert missed == pytest.approx((1 + 2 / 3 + 3 / 4) / 4)
    assert average_precision(~true[[0, 2]], np.ones(2), np.ones(2))[0] == 0


def test_the_means_over_pairs_and_over_labels_by_hand():
    """The third label occurs nowhere, and one text has a label that training lacks."""
    true = np.array([[True, False, False], [False, True, False]])
    probability = np.array([[0.9, 0.6, 0.1], [0.7, 0.8, 0.2]])
    known = average_precisions(true, probability, np.zeros(2))
    assert known(np.ones(2)) == {"micro_ap": 1.0, "macro_ap": 1.0}
    worse = average_precisions(true, 1 - probability, np.array([0, 1]))
    # The ranking of pairs is .9, .8, .4, .3, .2 (true), .1 (true): a fifth and a third.
    expected = {
        "micro_ap": pytest.approx((1 / 5 + 2 / 6) / 3),
        "macro_ap": pytest.approx((1 / 2 + 1 / 2 + 0) / 3),
    }
    assert worse(np.ones(2)) == expected
    # In the first text alone there is one label, the last of three.
    assert worse(np.array([1.0, 0.0])) == {
        "micro_ap": pytest.approx(1 / 3),
        "macro_ap": pytest.approx(1.0),
    }


@pytest.fixture(scope="module")
def drawn():
    """Labels, probabilities of few values, so that many tie, and unknown labels."""
    random = np.random.default_rng(0)
    probability = random.integers(0, 12, size=(60, 5)) / 12
    true = random.random((60, 5)) < probability**2
    return true, probability, random.integers(0, 2, 60)


def test_it_is_that_of_scikit_learn(drawn):
    learned = pytest.importorskip("sklearn.metrics")
    true, probability, _ = drawn
    weights = np.random.default_rng(1).integers(0, 3, 60).astype(np.float64)
    found = average_precisions(true, probability, np.zeros(60))(weights)
    for average in ("micro", "macro"):
        expected = learned.average_precision_score(
            true, probability, average=average, sample_weight=weights
        )
        assert found[f"{average}_ap"] == pytest.approx(expected)


def test_the_influence_of_a_group_is_what_its_weight_changes(drawn):
    corpus, groups = average_precisions(*drawn), np.arange(60) % 7
    inside = np.arange(60) < 50
    influence = metrics.influence(corpus, groups, inside)
    for group in range(7):
        change = 1e-5 * (groups == group) * inside
        more, less = corpus(inside + change), corpus(inside - change)
        for name, values in influence.items():
            assert values[group] == pytest.approx((more[name] - less[name]) / 2e-5, rel=1e-4)
    # Twice the queries in the same groups leave the metrics and their errors as they are.
    once = metrics.summarize_corpus(corpus, groups, inside)
    twice = average_precisions(*(np.concatenate([one, one]) for one in drawn))
    again = metrics.summarize_corpus(twice, np.tile(groups, 2), np.tile(inside, 2))
    for name, summary in once.items():
        assert again[name] == pytest.approx(summary)
        assert 0.01 < summary["standard_error"] < 0.1
