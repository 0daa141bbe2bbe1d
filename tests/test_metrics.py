"""Metrics and their errors over groups, computed by hand."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest

from cbert.data.prepared import Split
from cbert.errors import UserError
from cbert.evaluation import (
    baselines,
    breakdown,
    co_occurrence,
    given_context,
    intervals,
    metrics,
)
from cbert.evaluation.co_occurrence import CoOccurrence
from cbert.evaluation.measured import Measured
from cbert.schema import (
    SET,
    UNKNOWN_ITEM,
    Categorical,
    History,
    Schema,
    Vector,
)
from cbert.tasks import ranking
from cbert.tasks.masked_queries import query_each, query_one
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


SCHEMA = Schema(SET, 3, ("a", "b", "c"), (3, 2, 2), (Categorical("day", 4, ("mon", "tue")),))


def split(items, days, ids=None):
    names = ids or [str(n) for n in range(len(items))]
    codes = SCHEMA.encode_items(items)
    return Split(
        names,
        names,
        ["{}"] * len(items),
        codes,
        {"day": SCHEMA.encode_feature("day", days)},
        None,
    )


def test_queries_skip_unknown_items_and_count_them():
    queries = query_each(split([["a", "x"], ["b", "c"], ["x"]], [None] * 3))
    assert queries.rows.tolist() == [0, 1, 1]
    assert queries.items.tolist() == [0, 1, 2]
    assert queries.skipped == 2
    one = query_one(split([["a", "x"], ["b", "c"], ["x"]], [None] * 3))
    assert one.rows.tolist() == [0, 1]
    assert one.skipped == 1
    assert UNKNOWN_ITEM not in one.items


def test_one_query_depends_on_the_id_alone():
    items = [["a", "b", "c"]] * 50
    ids = [f"set-{n}" for n in range(50)]
    one = query_one(split(items, [None] * 50, ids))
    backwards = query_one(split(items, [None] * 50, ids[::-1]))
    assert (one.positions == backwards.positions[::-1]).all()
    assert set(one.positions) == {0, 1, 2}


def test_popularity_by_hand_with_ties_against_the_target():
    train = split([["a", "b"], ["a", "c"], ["a"]], ["mon"] * 3)
    log_probability, rank = baselines.predict_popularity(SCHEMA, query_each(train))
    np.testing.assert_allclose(np.exp(log_probability[:2]), [3.5 / 8.5, 2.5 / 8.5], rtol=1e-6)
    assert rank.tolist() == [1, 3, 1, 3, 1]


def test_only_the_most_frequent_values_of_a_feature_count(monkeypatch):
    train = split([["a"], ["b"], ["b"]], ["mon", "mon", "tue"])
    queries = query_each(train)
    both, _ = given_context.GivenContext(train, None, SCHEMA).predict(train, queries)
    monkeypatch.setattr(given_context, "MOST_VALUES", 1)
    one, _ = given_context.GivenContext(train, None, SCHEMA).predict(train, queries)
    alone, _ = baselines.predict_popularity(SCHEMA, queries)
    assert SCHEMA.features[0].values[0] == "mon"
    np.testing.assert_array_equal(one[:2], both[:2])
    np.testing.assert_allclose(one[2], alone[2], rtol=1e-6)
    assert abs(both[2] - alone[2]) > 0.01


def test_co_occurrence_by_hand():
    """a stands beside b twice and c once; the last query sees nothing."""
    popularity = np.log([0.5, 0.3, 0.2])
    train = split([["a", "b"], ["b", "a"], ["a", "c"], ["b", "x"]], [None] * 4)
    baseline = CoOccurrence(train, None, popularity)
    baseline.smoothing = 2.0
    asked = split([["a", "b"], ["c", "b", "a"], ["c"]], [None] * 3)
    log_probability, rank = baseline.predict(asked, query_each(asked))
    beside_a = np.array([0 + 2 * 0.5, 2 + 2 * 0.3, 1 + 2 * 0.2]) / (3 + 2)
    beside_b = np.array([2 + 2 * 0.5, 0 + 2 * 0.3, 0 + 2 * 0.2]) / (2 + 2)
    beside_c = np.array([1 + 2 * 0.5, 0 + 2 * 0.3, 0 + 2 * 0.2]) / (1 + 2)
    expected = [
        *(beside_b[0], beside_a[1]),
        *((beside_b + beside_a)[2] / 2, (beside_c + beside_a)[1] / 2),
        *((beside_c + beside_b)[0] / 2, 0.2),
    ]
    np.testing.assert_allclose(np.exp(log_probability), expected, rtol=1e-6)
    assert rank.tolist() == [1, 1, 3, 2, 1, 3]


def test_co_occurrence_is_a_distribution_tuned_on_the_validation_split(monkeypatch):
    """Where b always stands beside a the least is best, and more where c does, too."""
    popularity = np.log([0.4, 0.3, 0.3])
    pairs, mixed = [["a", "b"]] * 50 + [["c", "c"]] * 50, [["a", "b"], ["a", "c"]] * 50
    for items, smoothing in ((pairs, 1.0), (mixed, 1000.0)):
        baseline = CoOccurrence(
            split(pairs, [None] * 100), split(items, [None] * 100), popularity
        )
        assert baseline.smoothing == smoothing
        part = split([["a", "b", "x"], ["c"]], [None] * 2)
        summed = baseline.probabilities(part, np.array([0, 1]), np.array([0, 0])).sum(axis=1)
        np.testing.assert_allclose(summed, 1)
    # No more than so many pairs are counted: every other example.
    monkeypatch.setattr(co_occurrence, "MOST_PAIRS", 4 * 50)
    half = CoOccurrence(split(pairs, [None] * 100), None, popularity)
    unknown = split([["x"]] * 9, [None] * 9)
    assert CoOccurrence(split(pairs, [None] * 100), unknown, popularity).smoothing == 100.0
    np.testing.assert_array_equal(half._totals, [25, 25, 50])


def test_popularity_given_context_by_hand():
    train = split([["a", "a"], ["b"], ["b"]], ["mon", "mon", "tue"])
    baseline = given_context.GivenContext(train, None, SCHEMA)
    baseline.smoothing, baseline.exponent = 1.0, 0.5
    queries = query_each(split([["a"], ["b"]], ["tue", None]))
    log_probability, _ = baseline.predict(split([["a"], ["b"]], ["tue", None]), queries)
    popularity = np.array([3.5, 2.5, 2.5]) / 8.5
    # One of the four items was eaten on a Tuesday: a and b are expected there half a time each.
    ratio = np.array([(0 + 1) / (0.5 + 1), (1 + 1) / (0.5 + 1), (0 + 1) / (0 + 1)])
    weights = popularity * ratio**0.5
    np.testing.assert_allclose(
        np.exp(log_probability), [weights[0] / weights.sum(), popularity[1]], rtol=1e-5
    )


def test_popularity_given_context_is_tuned_on_the_validation_split():
    """A context that decides counts most, and one that misleads as little as it can."""
    items, days = [["a"], ["b"]] * 50, ["mon", "tue"] * 50
    train = split(items, days)
    for validation, tuned in (
        (train, (1.0, 1.0)),
        (split(items, days[::-1]), (100.0, 0.25)),
        (None, (10.0, 0.5)),
    ):
        baseline = given_context.GivenContext(train, validation, SCHEMA)
        assert (baseline.smoothing, baseline.exponent) == tuned


def test_an_optimum_is_a_baseline_where_it_is_known_for_every_query():
    """Data that were prepared earlier do not know what is optimal without the context."""
    plain = split([["a", "b"], ["c", "a"]], ["mon"] * 2)
    names = "log_probability", "rank", "without_context"
    reference = {name: np.full(plain.items.shape, -1.5, np.float32) for name in names}
    known = dataclasses.replace(plain, reference=reference)
    optima = baselines.optima(known, query_each(known))
    assert list(optima) == ["Bayes-optimal without context", "Bayes-optimal"]
    assert optima["Bayes-optimal without context"]["log_probability"].tolist() == [-1.5] * 4
    reference["without_context"][1, 0] = np.nan
    assert list(baselines.optima(known, query_each(known))) == ["Bayes-optimal"]
    assert baselines.optima(plain, query_each(plain)) == {}
