"""The generative process of the synthetic data, against brute force."""

import itertools

import numpy as np

from cbert.data.synthetic import catalogue, process, stylist

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


def joint(items, context):
    """P(outfit | customer), written out: a subset's probability times a sum over themes."""
    weights = PROCESS.type_weights(context)
    types = CATALOGUE.types[items]
    if len(set(types)) < len(items):
        return 0.0
    subset = weights[types].prod() / sum(
        weights[list(some)].prod() for some in itertools.combinations(range(18), len(items))
    )
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
