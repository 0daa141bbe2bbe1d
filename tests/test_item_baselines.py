"""What an evaluation of items asks, and its baselines, computed by hand."""

import dataclasses

import numpy as np

from cbert.data.prepared import Split
from cbert.evaluation import baselines, co_occurrence, given_context
from cbert.evaluation.co_occurrence import CoOccurrence
from cbert.schema import SET, UNKNOWN_ITEM, Categorical, Schema
from cbert.tasks import ranking
from cbert.tasks.masked_queries import query_each, query_one

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


def by_popularity(queries):
    return baselines.predict_fractions(ranking.log_fractions(SCHEMA.counts), queries)


def test_popularity_by_hand_with_ties_against_the_target():
    train = split([["a", "b"], ["a", "c"], ["a"]], ["mon"] * 3)
    log_probability, rank = by_popularity(query_each(train))
    np.testing.assert_allclose(np.exp(log_probability[:2]), [3.5 / 8.5, 2.5 / 8.5], rtol=1e-6)
    assert rank.tolist() == [1, 3, 1, 3, 1]


def test_baselines_count_the_training_split_whatever_the_schema_counts():
    """Data that the schema of others prepared; the schema counts 3, 2 and 2."""
    train = split([["c"], ["c"], ["b", "c"]], [None] * 3)
    asked = split([["c"], ["a"]], [None] * 2)
    made = baselines.of_items({"train": train}.get, SCHEMA, asked, query_each(asked))
    assert list(made) == ["popularity", "popularity given context", "co-occurrence"]
    for one in made.values():
        expected = [3.5 / 5.5, 0.5 / 5.5]
        np.testing.assert_allclose(np.exp(one["log_probability"]), expected, rtol=1e-6)
        assert one["rank"].tolist() == [1, 3]
    alone = baselines.of_items({}.get, SCHEMA, asked, query_each(asked))["popularity"]
    np.testing.assert_allclose(np.exp(alone["log_probability"][0]), 2.5 / 8.5, rtol=1e-6)


def test_baselines_of_a_training_split_without_a_known_item_are_uniform():
    """New data that an old schema prepared may have known items in their test split alone."""
    train, asked = split([["x"], ["y"]], ["mon", "tue"]), split([["a", "b"]], ["mon"])
    made = baselines.of_items({"train": train}.get, SCHEMA, asked, query_each(asked))
    assert list(made) == ["popularity", "popularity given context", "co-occurrence"]
    for one in made.values():
        np.testing.assert_allclose(np.exp(one["log_probability"]), [1 / 3] * 2, rtol=1e-6)


def test_only_the_most_frequent_values_of_a_feature_count(monkeypatch):
    train = split([["a"], ["b"], ["b"]], ["mon", "mon", "tue"])
    queries = query_each(train)
    given = train, None, SCHEMA, SCHEMA.counts
    both, _ = given_context.GivenContext(*given).predict(train, queries)
    monkeypatch.setattr(given_context, "MOST_VALUES", 1)
    one, _ = given_context.GivenContext(*given).predict(train, queries)
    alone, _ = by_popularity(queries)
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
    baseline = given_context.GivenContext(train, None, SCHEMA, SCHEMA.counts)
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
        baseline = given_context.GivenContext(train, validation, SCHEMA, SCHEMA.counts)
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
