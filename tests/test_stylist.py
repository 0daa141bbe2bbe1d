"""The generative process of the synthetic data, against brute force."""

import functools
import itertools

import numpy as np
import pytest

from cbert.data.synthetic import catalogue, process, stylist, without_context
from cbert.data.synthetic.customers import draw_block, draw_customers
from cbert.data.synthetic.interactions import PARTNERS

CATALOGUE = catalogue.make_catalogue(80)
PROCESS = process.GenerativeProcess(CATALOGUE)
CUSTOMERS = [context for _, context in draw_customers(np.random.default_rng(0), 30)]
INTERACTING = process.GenerativeProcess(CATALOGUE, interactions=True)
OUTFITS = PROCESS.draw(np.random.default_rng(1), CUSTOMERS)


def test_subsets_are_drawn_with_their_probabilities():
    weights = np.array([0.5, 1.0, 2.0, 4.0])
    pairs = list(itertools.combinations(range(4), 2))
    products = np.array([weights[list(pair)].prod() for pair in pairs])
    assert process.elementary_symmetric(weights, 2)[0, 2] == products.sum()
    random = np.random.default_rng(0)
    table = process.elementary_symmetric(weights, 3)
    drawn = [tuple(process.draw_subset(random, weights, table, 2)) for _ in range(20_000)]
    frequencies = np.array([drawn.count(pair) for pair in pairs]) / 20_000
    np.testing.assert_allclose(frequencies, products / products.sum(), atol=0.015)


def test_conditionals_sum_to_one_and_exclude_types_shown():
    for items, context in zip(OUTFITS, CUSTOMERS, strict=True):
        probabilities = PROCESS.conditional(items, context)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
        types = CATALOGUE.types[items]
        assert len(set(types)) == len(items)
        for index in range(len(items)):
            others = np.isin(CATALOGUE.types, np.delete(types, index))
            assert (probabilities[index, others] == 0).all()
            assert (probabilities[index, ~others] > 0).all()


@functools.cache
def subsets(weights, size):
    """The sum of the products of all subsets of a size."""
    return sum(map(np.prod, itertools.combinations(weights, size)))


def taste(generative, context):
    """f_u `[V]`."""
    return generative.taste(context)[generative._cells]


def joint(generative, items, context):
    """P(outfit | customer), written out: a subset's probability times a sum over themes."""
    weights = generative.type_weights(context)
    types = CATALOGUE.types[items]
    if len(set(types)) < len(items):
        return 0.0
    subset = weights[types].prod() / subsets(tuple(weights), len(items))
    total = 0.0
    for theme, probability in enumerate(generative.theme_probabilities(context)):
        fitting = generative._themed[theme] * taste(generative, context)
        total += probability * np.prod(
            [
                fitting[item] / fitting[CATALOGUE.types == CATALOGUE.types[item]].sum()
                for item in items
            ]
        )
    return subset * total


@pytest.mark.parametrize("generative", [PROCESS, INTERACTING])
def test_the_optimum_is_bayes_rule_on_the_joint_distribution(generative):
    items, context = next(
        (i, c) for i, c in zip(OUTFITS, CUSTOMERS, strict=True) if len(i) == 4
    )
    candidates = np.array(
        [joint(generative, np.append(items[1:], a), context) for a in range(80)]
    )
    np.testing.assert_allclose(
        generative.conditional(items, context)[0], candidates / candidates.sum(), atol=1e-12
    )


SHORT = [number for number, items in enumerate(OUTFITS) if len(items) == 4]


def test_without_the_context_the_joint_distribution_is_averaged_over_customers():
    """At work, customers have all combinations of what decides types, theme and tastes."""
    combinations = itertools.product(
        ("female", "male"), ("casual", "street"), ("red", "blue"), ("work",)
    )
    names = "gender", "styles", "colours", "occasion"
    at_work = [dict(zip(names, values, strict=True)) for values in combinations]
    block = [(0.7, at_work), (0.3, [{"brands": ["Alba"]}])]
    items = OUTFITS[SHORT[0]]

    def averaged(article):
        outfit = np.append(items[1:], article)
        return sum(
            probability * np.mean([joint(PROCESS, outfit, customer) for customer in customers])
            for probability, customers in block
        )

    own = averaged(items[0]) / sum(map(averaged, range(80)))
    predicted = without_context.predict(PROCESS, [items], [block])
    assert predicted.log_probability[0].shape == (4,)
    np.testing.assert_allclose(predicted.log_probability[0][0], np.log(own), rtol=1e-5)
    assert np.isnan(predicted.error)


def test_the_jackknife_by_hand():
    """Two blocks say 1/2 and 3/4, and together 4/6; a probability above 1 becomes 1."""
    numerators, denominators = (np.array(n).reshape(2, 1, 1) for n in ([1.0, 3], [2.0, 4]))
    every, without_one = without_context._estimates(numerators, denominators)
    np.testing.assert_allclose(without_one.ravel(), np.log([3 / 4, 1 / 2]))
    np.testing.assert_allclose(every, 2 * np.log(4 / 6) - np.log([3 / 4, 1 / 2]).mean())
    certain, _ = without_context._estimates(np.array([[[1.0]], [[0.01]]]), np.ones((2, 1, 1)))
    assert certain == 0


def test_few_customers_leave_the_error_that_is_stated():
    random = np.random.default_rng(0)
    outfits = [OUTFITS[number] for number in SHORT]

    def mean_and_error(customers):
        blocks = [draw_block(random, customers // 8) for _ in range(8)]
        predicted = without_context.predict(PROCESS, outfits, blocks)
        return np.concatenate(predicted.log_probability).mean(), predicted.error

    nearly_exact, _ = mean_and_error(1024)
    draws = np.array([mean_and_error(64) for _ in range(6)])
    scores = (draws[:, 0] - nearly_exact) / draws[:, 1]
    assert abs(scores.mean()) < 1.5
    assert 0.4 < np.sqrt((scores**2).mean()) < 2.5
    known = [
        PROCESS.reference(OUTFITS[number], CUSTOMERS[number])["log_probability"]
        for number in SHORT
    ]
    assert 0.2 < np.concatenate(known).mean() - nearly_exact < 2.0


def test_what_is_missing_changes_the_optimum_and_the_rank_counts_ties():
    items, context = OUTFITS[0], CUSTOMERS[0]
    bare = PROCESS.conditional(items, {})
    assert np.abs(bare - PROCESS.conditional(items, context)).max() > 0.01
    reference = PROCESS.reference(items, context)
    probabilities = PROCESS.conditional(items, context)[0]
    own = probabilities[items[0]]
    assert reference["rank"][0] == (probabilities >= own).sum()
    assert reference["log_probability"][0] == np.log(own)


def test_a_preference_depends_on_occasion_and_age_together():
    def log_taste(age, occasion):
        return np.log(taste(PROCESS, {"age": age, "occasion": occasion}))

    interaction = (log_taste(25, "work") - log_taste(60, "work")) - (
        log_taste(25, "party") - log_taste(60, "party")
    )
    assert np.abs(interaction).max() > 1


def one_hot(contexts):
    features = [feature for feature in stylist.schema(80).features if feature.name in PARTNERS]
    return np.array(
        [[1.0, *(v in values(c, f.name) for f in features for v in f.values)] for c in contexts]
    )


def values(context, name):
    value = context.get(name, [])
    return [value] if isinstance(value, str) else value


def test_only_sums_over_features_are_linear_in_them():
    """The probe's R² is adjusted; a taste counts up to a factor, and all are of one age."""
    random = np.random.default_rng(2)
    contexts = [dict(c, age=35) for _, c in draw_customers(random, 800)]
    features = one_hot(contexts)
    explained, variances = [], []
    for generative in (PROCESS, INTERACTING):
        tastes = np.log([taste(generative, context) for context in contexts])
        tastes -= tastes.mean(axis=1, keepdims=True)
        tastes -= tastes.mean(axis=0)
        errors = tastes - features @ np.linalg.lstsq(features, tastes)[0]
        freedom = len(contexts) - np.linalg.matrix_rank(features)
        variances.append((tastes**2).mean())
        explained.append(1 - (errors**2).sum() / freedom / variances[-1] / tastes.shape[1])
    assert explained[0] > 1 - 1e-9
    assert abs(explained[1]) < 0.05
    # The prices wanted are spread evenly with interactions; this makes the difference.
    assert 1 < variances[1] / variances[0] < 1.2


def test_lengths_are_four_to_eight_with_mean_five():
    mean = np.dot(process.LENGTHS, process.LENGTH_PROBABILITIES)
    assert abs(mean - 5) < 1e-9
    assert sum(process.LENGTH_PROBABILITIES) == 1
    lengths = [len(items) for items in OUTFITS]
    assert min(lengths) >= 4
    assert max(lengths) <= 8


def test_rows_are_the_same_for_the_same_seed():
    one, other = (list(stylist.outfits(80, [40, 5, 5], seed=3)) for _ in range(2))
    assert one == other
    assert one != list(stylist.outfits(80, [40, 5, 5], seed=4))
    other = list(stylist.outfits(80, [40, 5, 5], seed=3, interactions=True))
    assert [row["context"] for row in one] == [row["context"] for row in other]
    assert [row["items"] for row in one] != [row["items"] for row in other]
    assert all(("reference" in row) == (row["split"] != "train") for row in one)
