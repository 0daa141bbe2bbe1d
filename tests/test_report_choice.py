"""Of each method a report can keep the setting that is best on the validation split."""

import itertools
import json

import pytest

from cbert.errors import UserError
from cbert.report import choice, report_data, sections, statistics, variants, writers
from tests.conftest import small
from tests.report_runs import STEPS, write_run

RATE = "optimizer__learning_rate"


def validate(path, value):
    """Gives a run this validation value at its best step, neither the first nor the last."""
    curve = {STEPS[0]: value + 1, STEPS[-1]: value, STEPS[-1] + 1: value + 0.5}
    rows = [
        {"step": step, "split": "validation", "cross_entropy": value}
        for step, value in curve.items()
    ]
    rows += [{"step": step, "split": "train", "loss": 9.0 - step} for step in STEPS]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_grid(directory, values):
    """Writes a run for each (method, rate, seed) with this validation value.

    On the test split the order of the rates is the opposite one.
    """
    for (method, rate, seed), value in values.items():
        name = f"{method}-{rate}-{seed}"
        path = write_run(directory, method, seed, gain=value, name=name, **{RATE: rate})
        validate(path, value)


def test_validation_chooses_and_the_test_split_does_not(tmp_path):
    rates = {("none", 1e-3): (3.0, 3.2), ("none", 1e-2): (3.05, 3.05)}
    rates |= {("gs", 1e-3): (2.0, 2.0), ("gs", 1e-2): (2.4, 1.7)}
    grid = {(*key, seed): two[seed] for key, two in rates.items() for seed in (0, 1)}
    write_grid(tmp_path, grid)
    data = report_data.load(tmp_path, "test", best_settings=True)
    assert list(data.variants) == ["none learning_rate=0.01", "gs learning_rate=0.001"]
    assert data.base == "none learning_rate=0.01"
    assert [one.mean for one in data.candidates] == pytest.approx([3.1, 3.05, 2.0, 2.05])
    assert [one.chosen for one in data.candidates] == [False, True, True, False]
    assert len({one.base for one in statistics.pairs(data)}) == 1  # There is one pair to test.
    assert len(report_data.load(tmp_path, "test").variants) == 4


def test_a_setting_without_all_seeds_is_not_chosen(tmp_path):
    """It diverged with one of them, or was tried with one alone."""
    grid = {("gs", 1e-2, 0): 1.0, ("gs", 1e-3, 0): 2.0, ("gs", 1e-3, 1): 2.2}
    write_grid(tmp_path, grid)
    data = report_data.load(tmp_path, "test", best_settings=True)
    assert list(data.variants) == ["gs learning_rate=0.001"]
    assert data.missing == []


def test_a_setting_that_is_not_chosen_while_a_seed_still_trains_is_missing(tmp_path):
    write_grid(tmp_path, {("gs", 1e-2, 0): 1.0, ("gs", 1e-3, 0): 2.0, ("gs", 1e-3, 1): 2.2})
    write_run(tmp_path, "gs", 1, name="late", finished=False, evaluated=False, **{RATE: 1e-2})
    data = report_data.load(tmp_path, "test", best_settings=True)
    assert list(data.variants) == ["gs learning_rate=0.001"]
    assert data.missing == ["gs learning_rate=0.01, seed 1 (late): not finished (step 3 of 6)"]


def test_where_no_setting_has_all_seeds_none_is_chosen(tmp_path):
    write_grid(tmp_path, {("gs", 1e-2, 0): 1.0, ("gs", 1e-3, 1): 2.2})
    with pytest.raises(UserError, match="no setting of gs has all of the seeds 0, 1"):
        report_data.load(tmp_path, "test", best_settings=True)


def test_a_run_without_validation_rows_is_named(tmp_path):
    path = write_run(tmp_path, "gs", 0)
    (path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="gs-0 has no validation rows to choose a setting by"):
        report_data.load(tmp_path, "test", best_settings=True)
    write_run(tmp_path, "gs", 1)
    variant = report_data.load(tmp_path, "test").variants["gs"]  # No mean over half the seeds.
    assert (statistics.validation(variant), statistics.training_loss(variant)) == (None, None)


def test_a_control_has_a_setting_of_its_own(tmp_path):
    for constant in (False, True):
        for rate in (1e-3, 1e-2):
            own = {RATE: rate, "model__constant_context": constant}
            validate(write_run(tmp_path, "gs", 0, name=f"{constant}-{rate}", **own), 3 - rate)
    loaded = report_data.load(tmp_path, "test", best_settings=True)
    assert list(loaded.variants) == [
        "gs learning_rate=0.01",
        "gs learning_rate=0.01, constant context",
    ]


def test_a_width_that_a_sweep_sets_is_a_setting_and_no_control(tmp_path):
    grid = itertools.product(("none", "gs"), (32, 48), (1e-3, 1e-2))
    for method, width, rate in grid:
        own = {RATE: rate, "model__feed_forward": width}
        path = write_run(tmp_path, method, 0, name=f"{method}-{width}-{rate}", **own)
        validate(path, 3 - width / 100 - rate)
    loaded = report_data.load(tmp_path, "test", best_settings=True)
    best = "feed_forward=48 learning_rate=0.01"
    assert list(loaded.variants) == [f"none {best}", f"gs {best}"]
    assert len(loaded.candidates) == 8


def test_of_two_widths_that_as_many_variants_have_neither_is_a_control():
    runs = [
        small(method, model__feed_forward=width, optimizer__learning_rate=rate)
        for method, width in (("gsu", 32), ("history", 24))
        for rate in (1e-3, 1e-2)
    ]
    assert variants.label([variants.identity(config) for config in runs]) == [
        "gsu feed_forward=32 learning_rate=0.001",
        "gsu feed_forward=32 learning_rate=0.01",
        "history feed_forward=24 learning_rate=0.001",
        "history feed_forward=24 learning_rate=0.01",
    ]


def test_the_method_and_control_of_a_label():
    of = variants.method_and_control
    assert of("gs") == "gs"
    assert of("gs learning_rate=0.1 dropout=0") == "gs"
    assert of("gs, wide") == "gs, wide"
    assert of("gsu layers=[1, 2], constant context, narrow") == "gsu, constant context, narrow"


def test_the_report_shows_all_settings_that_were_tried(tmp_path):
    write_grid(tmp_path, {("gs", 1e-2, 0): 2.0, ("gs", 1e-3, 0): 1.5, ("none", 1e-2, 0): 3.0})
    data = report_data.load(tmp_path, "test", best_settings=True)
    results, differences = statistics.results(data), statistics.pairs(data)
    by_title = {one.title: one for one in sections.make(data, results, differences)}
    [table] = by_title["Choice of settings"].tables
    assert [row[0] for row in table.rows] == [one.label for one in data.candidates]
    assert [row[-1] for row in table.rows] == ["chosen", "chosen", ""]
    assert [row[1] for row in table.rows] == ["3.0000", "1.5000", "2.0000"]
    chosen = data.variants["gs learning_rate=0.001"]
    assert statistics.validation(chosen).mean == 1.5
    assert statistics.training_loss(chosen).mean == 9.0 - STEPS[-1]
    assert "looks better than it is" not in by_title["Choice of settings"].text[0]
    writers.write(data)
    markdown = (tmp_path / "report-best_settings" / "report.md").read_text()
    assert "## Choice of settings" in markdown
    assert "learning\\_rate=0.01" in markdown
    everything = report_data.load(tmp_path, "test")
    assert everything.candidates == []
    assert everything.folder.name == "report"
    assert everything.missing == []  # The folder of a report is no run that lacks a config.
    assert choice.candidates({}) == []
