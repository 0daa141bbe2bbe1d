"""The generative process of the synthetic data, against brute force."""

import functools
import itertools

import numpy as np

from cbert.data.synthetic import catalogue, process, stylist, without_context

CATALOGUE = catalogue.make_catalogue(80)
PROCESS = process.GenerativeProcess(CATALOGUE)
CUSTOMERS = [context for _, context in stylist.draw_customers(np.random.default_rng(0), 30)]
OUTFITS = PROCESS.draw(np.random.default_rng(1), CUSTOMERS)


def test_subsets_are_drawn_with_their_probabilities():
    weights = np.array([0.5, 1.0, 2.0, 4.0])
    pairs = list(itertools.combinations(range(4), 2))
    products = np.array([weights[list(pair)].prod() for pair in pairs])
    assert process.elementary_symmetric(weights, 2)[0, 2] == products.sum()
    random = np.random.default_rng(0)
    drawn = [tuple(process.draw_subset(random, weights, 2)) for _ in range(20_000)]
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


def joint(items, context):
    """P(outfit | customer), written out: a subset's probability times a sum over themes."""
    weights = PROCESS.type_weights(context)
    types = CATALOGUE.types[items]
    if len(set(types)) < len(items):
        return 0.0
    subset = weights[types].prod() / subsets(tuple(weights), len(items))
    total = 0.0
    for theme, probability in enumerate(PROCESS.theme_probabilities(context)):
        fitting = PROCESS._themed[theme] * PROCESS.taste(context)
        total += probability * np.prod(
            [
                fitting[item] / fitting[CATALOGUE.types == CATALOGUE.types[item]].sum()
                for item in items
            ]
        )
    return subset * total


def test_the_optimum_is_bayes_rule_on_the_joint_distribution():
    items, context = next(
        (i, c) for i, c in zip(OUTFITS, CUSTOMERS, strict=True) if len(i) == 4
    )
    candidates = np.array([joint(np.append(items[1:], a), context) for a in range(80)])
    np.testing.assert_allclose(
        PROCESS.conditional(items, context)[0], candidates / candidates.sum(), atol=1e-12
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
            probability * np.mean([joint(outfit, customer) for customer in customers])
            for probability, customers in block
        )

    own = averaged(items[0]) / sum(map(averaged, range(80)))
    predicted = without_context.predict(PROCESS, [items], [block])
    assert predicted.log_probability[0].shape == (4,)
    np.testing.assert_allclose(predicted.log_probability[0][0], np.log(own), rtol=1e-5)
    assert np.isnan(predicted.error)


def test_few_customers_leave_the_error_that_is_stated():
    random = np.random.default_rng(0)
    outfits = [OUTFITS[number] for number in SHORT]

    def mean_and_error(customers):
        blocks = [stylist._draw_block(random, customers // 8) for _ in range(8)]
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
        return np.log(PROCESS.taste({"age": age, "occasion": occasion}))

    interaction = (log_taste(25, "work") - log_taste(60, "work")) - (
        log_taste(25, "party") - log_taste(60, "party")
    )
    assert np.abs(interaction).max() > 1


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
    assert all(("reference" in row) == (row["split"] != "train") for row in one)
