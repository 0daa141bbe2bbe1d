"""Intervals over seeds and groups: by hand, and by simulation."""

import numpy as np
import pytest
import scipy.stats

from cbert.evaluation import intervals

EQUAL = np.full(3, 1 / 3)


def test_holm_by_hand():
    corrected = intervals.holm(np.array([0.01, 0.04, 0.03, 0.005]))
    assert corrected == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert intervals.holm(np.array([0.6, 0.5])) == pytest.approx([1.0, 1.0])


def test_two_levels_by_hand():
    """Two seeds, three groups of one query: the mean squares are 6, 8 and 2."""
    table = np.array([[1.0, 2.0, 6.0], [3.0, 6.0, 6.0]])
    by_seed, grand = table.mean(axis=1), table.mean()
    over_seeds = 3 * ((by_seed - grand) ** 2).sum() / 1
    over_groups = 2 * ((table.mean(axis=0) - grand) ** 2).sum() / 2
    rest = table - by_seed[:, None] - table.mean(axis=0) + grand
    both = (rest**2).sum() / 2
    assert (over_seeds, over_groups, both) == pytest.approx((6.0, 8.0, 2.0))
    estimate = intervals.two_level(by_seed, (table - by_seed[:, None]) / 3, EQUAL)
    assert estimate.mean == pytest.approx(4.0)
    assert estimate.error**2 == pytest.approx((6 + 8 - 2) / 6)
    satterthwaite = 12**2 / (6**2 / 1 + 8**2 / 2 + 2**2 / 2)
    assert estimate.freedom == pytest.approx(2 / (1 / satterthwaite + 1 / 1))
    # What all groups add alike is no error over groups.
    shifted = intervals.two_level(by_seed, table / 3, EQUAL)
    assert (shifted.error, shifted.freedom) == pytest.approx((estimate.error, estimate.freedom))
    low, high = estimate.interval()
    reach = scipy.stats.t.ppf(0.975, estimate.freedom) * np.sqrt(2)
    assert (low, high) == pytest.approx((4 - reach, 4 + reach))


def test_an_error_is_no_less_than_that_over_seeds():
    """Groups that differ by seed alone leave less than nothing once that is taken away."""
    table = np.array([[2.0, 0.0, 1.0], [2.0, 4.0, 3.0]])
    by_seed = table.mean(axis=1)
    estimate = intervals.two_level(by_seed, (table - by_seed[:, None]) / 3, EQUAL)
    assert estimate.error == pytest.approx(by_seed.std(ddof=1) / np.sqrt(2))


def test_one_seed_carries_groups_and_one_group_carries_nothing():
    values = np.array([[1.0, 2.0, 6.0]])
    estimate = intervals.two_level(values.mean(axis=1), (values - 3) / 3, EQUAL)
    assert estimate.error == pytest.approx(values.std(ddof=1) / np.sqrt(3))
    assert estimate.p_different() == pytest.approx(scipy.stats.ttest_1samp(values[0], 0).pvalue)
    alone = intervals.two_level(np.array([1.0, 1.1]), np.zeros((2, 1)), np.ones(1))
    assert alone.interval() == (-np.inf, np.inf)
    assert alone.p_different() == 1.0


def test_level_needs_both_one_sided_tests():
    mean, error, freedom = map(np.array, (0.004, 0.002, 6.0))
    estimate = intervals.Estimate(mean, error, freedom)
    assert estimate.p_level(0.01) == pytest.approx(scipy.stats.t.sf(3, 6))
    assert estimate.p_level(0.004) == pytest.approx(0.5)
    exact = intervals.Estimate(np.array([0.0, 0.02]), np.zeros(2), np.full(2, 4.0))
    assert exact.p_level(0.01).tolist() == [0.0, 1.0]
    assert exact.p_different().tolist() == [1.0, 0.0]


def simulated(deviation, difference, count=4000, seeds=5, groups=60):
    """Estimates of pairs of methods whose seeds deviate, from as many simulated sweeps.

    Group means deviate so that the error over groups is 0.0024 nats, as between two methods
    that read the context, and what a seed does to a group is half as large.
    """
    random = np.random.default_rng([int(1e4 * deviation), int(1e4 * difference)])
    of_group = 0.0024 * np.sqrt(groups)
    of_seeds = np.sqrt(2) * deviation * random.normal(size=(count, seeds, 1))
    values = difference + of_seeds + of_group * random.normal(size=(count, 1, groups))
    values += of_group / 2 * random.normal(size=(count, seeds, groups))
    by_seed = values.mean(axis=2)
    influence = (values - by_seed[:, :, None]) / groups
    return intervals.two_level(by_seed, influence, np.full(groups, 1 / groups))


def test_the_factor_of_unequal_groups_by_hand():
    """With fractions 1/2, 1/4 and 1/4, h is 3/8 and the expected squares are

    1/4 (1 - 1 + 3/8) + 2 * 1/16 (1 - 1/2 + 3/8) = 6/64 + 7/64.
    """
    fractions = np.array([0.5, 0.25, 0.25])
    assert intervals.effective_groups(fractions) == pytest.approx(8 / 3)
    assert intervals.groups_factor(fractions) == pytest.approx((3 / 8) / (13 / 64))
    assert intervals.groups_factor(EQUAL) == pytest.approx(3 / 2)
    assert intervals.degrees_of_freedom(fractions) == pytest.approx(5 / 3)
    # Two groups have one degree of freedom, however unequal they are.
    assert intervals.degrees_of_freedom(np.array([0.999, 0.001])) == 1
    # A group that has no queries counts for nothing.
    assert intervals.groups_factor(np.append(EQUAL, 0.0)) == pytest.approx(3 / 2)


@pytest.mark.parametrize("seeds", [1, 5])
def test_intervals_hold_what_they_say_where_groups_are_unequal(seeds):
    """Four groups of 40 have 80 % of the queries; seeds deviate as much as groups do."""
    fractions = np.array([0.2] * 4 + [0.2 / 36] * 36)
    random, count = np.random.default_rng(seeds), 4000
    values = random.normal(size=(count, 1, 40)) + np.zeros((count, seeds, 1))
    if seeds > 1:
        values += random.normal(size=(count, seeds, 1))
    by_seed = values @ fractions
    influence = (values - by_seed[..., None]) * fractions
    low, high = intervals.two_level(by_seed, influence, fractions).interval()
    assert 0.91 < ((low <= 0) & (high >= 0)).mean() < 0.97


@pytest.mark.parametrize("deviation", [0.007, 0.014])
def test_intervals_hold_what_they_say_where_seeds_deviate(deviation):
    equal = simulated(deviation, 0.0)
    low, high = equal.interval()
    assert 0.93 < ((low <= 0) & (high >= 0)).mean() < 0.97
    assert (equal.p_different() <= 0.05).mean() <= 0.05
    # Methods that differ by the margin are called level in one case of twenty at most.
    assert (simulated(deviation, 0.01).p_level(0.01) <= 0.05).mean() <= 0.05
    # Over groups alone, as with one seed, the same intervals would hold the truth too rarely.
    groups_alone = intervals.Estimate(equal.mean, np.array(0.0024), np.array(59.0))
    low, high = groups_alone.interval()
    assert ((low <= 0) & (high >= 0)).mean() < 0.75


def test_level_is_found_where_seeds_deviate_little():
    assert (simulated(0.002, 0.0).p_level(0.01) <= 0.05).mean() > 0.5
