"""The law of the synthetic data, against brute force."""

import itertools

import numpy as np

from cbert.data import stylist, stylist_catalogue, stylist_law

CATALOGUE = stylist_catalogue.make_catalogue(80)
LAW = stylist_law.Law(CATALOGUE)
CUSTOMERS = [context for _, context in stylist.draw_customers(np.random.default_rng(0), 30)]
OUTFITS = LAW.draw(np.random.default_rng(1), CUSTOMERS)


def test_subsets_are_drawn_by_their_law():
    weights = np.array([0.5, 1.0, 2.0, 4.0])
    pairs = list(itertools.combinations(range(4), 2))
    products = np.array([weights[list(pair)].prod() for pair in pairs])
    assert stylist_law.elementary_symmetric(weights, 2)[0, 2] == products.sum()
    random = np.random.default_rng(0)
    drawn = [tuple(stylist_law.draw_subset(random, weights, 2)) for _ in range(20_000)]
    shares = np.array([drawn.count(pair) for pair in pairs]) / 20_000
    np.testing.assert_allclose(shares, products / products.sum(), atol=0.015)


def test_conditionals_sum_to_one_and_exclude_types_shown():
    for items, context in zip(OUTFITS, CUSTOMERS, strict=True):
        found = LAW.conditional(items, context)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
        types = CATALOGUE.types[items]
        assert len(set(types)) == len(items)
        for place in range(len(items)):
            others = np.isin(CATALOGUE.types, np.delete(types, place))
            assert (found[place, others] == 0).all()
            assert (found[place, ~others] > 0).all()


def joint(items, context):
    """P(outfit | customer), written out: subset law times a sum over themes."""
    weights = LAW.type_weights(context)
    types = CATALOGUE.types[items]
    if len(set(types)) < len(items):
        return 0.0
    subset = weights[types].prod() / sum(
        weights[list(some)].prod() for some in itertools.combinations(range(18), len(items))
    )
    total = 0.0
    for theme, share in enumerate(LAW.theme_probabilities(context)):
        fitting = LAW._themed[theme] * LAW.taste(context)
        total += share * np.prod(
            [
                fitting[item] / fitting[CATALOGUE.types == CATALOGUE.types[item]].sum()
                for item in items
            ]
        )
    return subset * total


def test_the_optimum_is_bayes_rule_on_the_joint_law():
    items, context = next(
        (i, c) for i, c in zip(OUTFITS, CUSTOMERS, strict=True) if len(i) == 4
    )
    candidates = np.array([joint(np.append(items[1:], a), context) for a in range(80)])
    np.testing.assert_allclose(
        LAW.conditional(items, context)[0], candidates / candidates.sum(), atol=1e-12
    )


def test_what_is_missing_changes_the_optimum_and_the_rank_counts_ties():
    items, context = OUTFITS[0], CUSTOMERS[0]
    bare = LAW.conditional(items, {})
    assert np.abs(bare - LAW.conditional(items, context)).max() > 0.01
    reference = LAW.reference(items, context)
    found = LAW.conditional(items, context)
    own = found[0, items[0]]
    assert reference["rank"][0] == (found[0] >= own).sum()
    assert reference["log_probability"][0] == np.log(own)


def test_a_preference_depends_on_occasion_and_age_together():
    def log_taste(age, occasion):
        return np.log(LAW.taste({"age": age, "occasion": occasion}))

    interaction = (log_taste(25, "work") - log_taste(60, "work")) - (
        log_taste(25, "party") - log_taste(60, "party")
    )
    assert np.abs(interaction).max() > 1


def test_lengths_are_four_to_eight_with_mean_five():
    mean = np.dot(stylist_law.LENGTHS, stylist_law.LENGTH_SHARES)
    assert abs(mean - 5) < 1e-9
    assert sum(stylist_law.LENGTH_SHARES) == 1
    lengths = [len(items) for items in OUTFITS]
    assert min(lengths) >= 4
    assert max(lengths) <= 8


def test_rows_are_the_same_for_the_same_seed():
    one, other = (list(stylist.outfits(80, [40, 5, 5], seed=3)) for _ in range(2))
    assert one == other
    assert one != list(stylist.outfits(80, [40, 5, 5], seed=4))
    assert all(("reference" in row) == (row["split"] != "train") for row in one)
