"""A mean's error over seeds, and what differences are called."""

import shutil

import numpy as np
import pytest

from cbert.report import report_data, statistics, writers
from cbert.tasks import ranking
from tests.report_runs import write_run


def test_standard_error_over_seeds_by_hand():
    mean = statistics.over_seeds([1.0, 2.0, 4.0])
    assert mean.mean == pytest.approx(7 / 3)
    assert mean.error == pytest.approx(np.sqrt((16 + 1 + 25) / 9 / 2) / np.sqrt(3))
    assert statistics.over_seeds([1.5]) == statistics.Mean(1.5, None, "seeds", 1)


@pytest.mark.parametrize(
    ("metric", "mean", "p_holm", "p_level_holm", "seeds", "verdict"),
    [
        ("cross_entropy", -0.2, 0.01, 1.0, 5, "gs better"),
        ("cross_entropy", 0.2, 0.05, 1.0, 7, "none better"),
        ("cross_entropy", -0.2, 0.06, 1.0, 5, "undecided"),
        ("cross_entropy", -0.2, 0.001, 1.0, 4, "too few seeds for a verdict"),
        ("cross_entropy", 0.001, 0.5, 0.01, 5, "level"),
        ("cross_entropy", 0.001, 0.01, 0.01, 5, "level"),
        ("cross_entropy", 0.001, 0.5, 0.01, 1, "too few seeds for a verdict"),
        ("recall@5", 0.1, 0.01, np.nan, 5, "gs better"),
        ("recall@5", -0.1, 0.01, np.nan, 5, "none better"),
        ("recall@5", 0.0, 1.0, np.nan, 5, "undecided"),
    ],
)
def test_verdicts(metric, mean, p_holm, p_level_holm, seeds, verdict):
    (metric,) = [one for one in ranking.METRICS if one.name == metric]
    by_seed = dict.fromkeys(range(seeds), mean)
    numbers = {"error": 0.1, "freedom": 4.0, "low": -1.0, "high": 1.0, "p": 0.0}
    one = statistics.Difference(
        *("none", "gs", metric, by_seed, mean),
        **numbers,
        p_level=0.0,
        p_holm=p_holm,
        p_level_holm=p_level_holm,
    )
    assert one.verdict == verdict
    assert one.better == (verdict.split()[0] if verdict.endswith("better") else None)


def test_the_table_of_a_paper_where_every_pair_is_with_the_base(tmp_path):
    for method, gain in (("none", 0.0), ("gs", 0.4)):
        write_run(tmp_path, method, 0, gain)
    writers.write(report_data.load(tmp_path, "test"))
    latex = (tmp_path / "report" / "report.tex").read_text()
    second = latex.split(r"\label{tab:differences}")[1]
    assert "on the same queries, $\\pm$ standard error over groups.}" in latex
    assert second.count("gs $-$ none & $-$0.") == 1
    assert second.count(r"\midrule") == 1


def test_variants_that_share_no_seed_with_the_base_are_compared_all_the_same(tmp_path):
    for method, seed in (("none", 0), ("none", 1), ("gs", 1), ("gsu", 1), ("c", 2), ("np", 2)):
        write_run(tmp_path, method, seed)
    data = report_data.load(tmp_path, "test", "c")
    assert "c, seed 0: no run, but one other variant has one" in data.missing
    pairs = {(one.base, one.other) for one in statistics.pairs(data)}
    assert pairs == {("c", "np"), ("none", "gs"), ("none", "gsu"), ("gs", "gsu")}
    shutil.rmtree(tmp_path / "np-2")  # Then no pair has the base.
    writers.write(report_data.load(tmp_path, "test", "c"))
    latex = (tmp_path / "report" / "report.tex").read_text()
    assert latex.split(r"\label{tab:differences}")[1].count(r"\midrule") == 1


def test_differences_are_as_exact_in_small_units(tmp_path):
    """A regression of numbers of a millionth has squared errors of 1e-12, and less between."""
    for method, gain in (("none", 0.0), ("gs", 0.4)):
        for seed in range(5):
            write_run(tmp_path, method, seed, gain)
    data = report_data.load(tmp_path, "test")
    runs, pair = statistics._measured(data), ("none", "gs", [*range(5)])
    own = statistics._difference(data, data.metric, pair, runs)
    for whole, influence in runs.values():
        whole[data.metric.name] *= 1e-12
        influence[data.metric.name] *= 1e-12
    small = statistics._difference(data, data.metric, pair, runs)
    assert small.mean == pytest.approx(1e-12 * own.mean, rel=1e-9, abs=0)
    assert small.error == pytest.approx(1e-12 * own.error, rel=1e-9, abs=0)
    assert small.p == pytest.approx(own.p) != 1
