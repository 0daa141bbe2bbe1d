"""Metrics and their errors over groups, computed by hand."""

import json
import tracemalloc

import numpy as np
import pytest

from cbert.errors import UserError
from cbert.evaluation import breakdown, intervals, metrics
from cbert.evaluation.measured import Measured
from cbert.schema import (
    Categorical,
    History,
    Vector,
)
from cbert.tasks import ranking
from cbert.tasks.metric import CorpusMetrics


def test_metrics_by_hand():
    log_probability = np.log([0.5, 0.25, 0.1, 0.01])
    per_query = ranking.metric_values(log_probability, np.array([1, 3, 10, 251]))
    mean = {name: values.mean() for name, values in per_query.items()}
    assert mean["cross_entropy"] == pytest.approx(-log_probability.mean())
    assert (mean["recall@1"], mean["recall@5"], mean["recall@250"]) == (0.25, 0.5, 0.75)
    assert mean["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 10 + 1 / 251) / 4)
    assert mean["ndcg@10"] == pytest.approx((1 + 0.5 + 1 / np.log2(11)) / 4)


def test_errors_are_over_groups():
    values = np.array([1.0, 1.0, 3.0, 3.0])
    apart = metrics.estimate(values, np.arange(4))
    assert (apart.mean, apart.error) == (2.0, pytest.approx(np.std(values, ddof=1) / 2))
    # Two groups of two equal values are two observations, 1 and 3.
    two = metrics.estimate(values, np.array([0, 0, 1, 1]))
    assert (two.mean, two.error, two.freedom) == (2.0, pytest.approx(1.0), 1.0)
    one = metrics.estimate(values, np.zeros(4, int))
    assert (one.mean, one.error) == (2.0, np.inf)
    assert one.summary() == {"mean": 2.0, "standard_error": None}
    # A group whose queries weigh nothing is as one that is not there.
    weights = np.array([1.0, 1.0, 1.0, 0.0])
    without = metrics.estimate(values[:3], np.arange(3)).summary()
    assert metrics.estimate(values, np.arange(4), weights).summary() == pytest.approx(without)
    assert metrics.estimate(values, np.arange(4), np.eye(4)[0]).summary() == {
        "mean": 1.0,
        "standard_error": None,
    }


def test_the_influence_of_a_group_by_hand():
    """The mean of 2, 4 and 9 is 5, and the square of the sum is no mean at all."""
    sums = CorpusMetrics(
        np.array([[2.0, 1.0], [4.0, 1.0], [9.0, 1.0]]),
        lambda sums: {"mean": sums[..., 0] / sums[..., 1], "square": sums[..., 0] ** 2},
    )
    influence = metrics.influence(sums, np.array([0, 0, 1]))
    np.testing.assert_allclose(influence["mean"], [(6 - 10) / 3, (9 - 5) / 3], rtol=1e-6)
    np.testing.assert_allclose(influence["square"], [2 * 15 * 6, 2 * 15 * 9], rtol=1e-6)
    inside = np.array([True, False, True])
    of_two = metrics.influence(sums, np.arange(3), inside)["mean"]
    np.testing.assert_allclose(of_two, [-7 / 4, 7 / 4], rtol=1e-6)


def test_a_group_that_weighs_nothing_has_no_influence_on_a_mean():
    """The error of the mean by its influences is that of `estimate`."""
    values, weights = np.array([1.0, 2.0, 9.0, 4.0]), np.array([1.0, 2.0, 0.0, 1.0])
    corpus = CorpusMetrics(np.ones((4, 1)), lambda sums: {"count": sums[..., 0]})
    every = Measured({"mean": values}, corpus, weights).every()
    influence = metrics.influence(every, np.arange(4))
    np.testing.assert_allclose(influence["count"], 1, rtol=1e-6)
    assert influence["mean"][2] == 0
    fractions = metrics.fractions(np.arange(4), weights)
    assert fractions.tolist() == [0.25, 0.5, 0.0, 0.25]
    expected = intervals.two_level(np.array([2.25]), influence["mean"][None], fractions)
    found = metrics.estimate(values, np.arange(4), weights)
    assert found.mean == 2.25
    assert found.error == pytest.approx(expected.error, rel=1e-5)


def test_errors_of_means_and_of_other_metrics_take_groups_as_equally_large():
    """The mean as a metric that is no mean has the mean's error, where queries have weights."""
    random = np.random.default_rng(0)
    values, weights = random.normal(size=60), random.integers(0, 9, 60).astype(float)
    groups = random.integers(0, 7, 60)
    columns = np.stack([values * weights, weights], axis=1)
    corpus = CorpusMetrics(columns, lambda sums: {"mean": sums[..., 0] / sums[..., 1]})
    inside = np.arange(60) < 50
    found = metrics.summarize_corpus(corpus, groups, inside, weights)["mean"]
    expected = metrics.estimate(values[inside], groups[inside], weights[inside])
    assert found["mean"] == pytest.approx(expected.mean)
    assert found["standard_error"] == pytest.approx(expected.error, rel=1e-5)
    # Those that are taken may weigh nothing, whatever others weigh; then each counts once.
    counted = metrics.summarize_corpus(corpus, groups, inside)["mean"]
    weights[inside] = 0
    assert metrics.summarize_corpus(corpus, groups, inside, weights)["mean"] == counted


def test_one_long_name_of_a_group_takes_no_room_for_all():
    """As strings of NumPy a thousand names would take 40 MB."""
    names = ["b", "a" * 10_000, "b", 3] * 250
    tracemalloc.start()
    codes = metrics.group_codes(names)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert codes.tolist() == [2, 1, 2, 0] * 250
    assert most < 1_000_000


def test_each_example_is_in_one_slice_of_a_history_or_of_a_value_that_is_called_missing():
    contexts = [json.dumps({"bought": value}) for value in ([], ["a"], None)]
    parts = breakdown.by_feature(contexts, History("bought", 4, max_items=2))
    assert {label: np.flatnonzero(rows).tolist() for label, rows in parts.items()} == {
        "0 items": [0],
        "1 items": [1],
        "(missing)": [2],
    }
    contexts = [json.dumps({"day": value}) for value in ("(missing)", None)]
    parts = breakdown.by_feature(contexts, Categorical("day", 4, ("(missing)",)))
    assert {label: np.flatnonzero(rows).tolist() for label, rows in parts.items()} == {
        "(missing)": [0],
        "((missing))": [1],
    }


def test_a_vector_cannot_be_sliced():
    with pytest.raises(UserError, match="colour: a vector has no values to list; use another"):
        breakdown.check(Vector("colour", 4, dimension=2))


def test_too_many_values_are_refused_before_their_slices_take_memory():
    day = Categorical("day", 4, ("mon",))
    contexts = [json.dumps({"day": f"the {n}th"}) for n in range(1001)]
    assert len(breakdown.by_feature(contexts[1:], day)) == 1000
    with pytest.raises(UserError, match="day: 1,001 values in these examples, and slices are"):
        breakdown.by_feature(contexts, day)
    # A history is sliced by its length, however many items there are.
    bought = [json.dumps({"bought": [f"item {n}"] * (1 + n % 2)}) for n in range(1001)]
    slices = breakdown.by_feature(bought, History("bought", 4))
    assert {label: int(inside.sum()) for label, inside in slices.items()} == {
        "1 items": 501,
        "2 items": 500,
    }
