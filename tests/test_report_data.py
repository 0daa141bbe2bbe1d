"""The report's statistics and names, computed by hand, and the sweeps that it refuses."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest

from cbert.errors import UserError
from cbert.report import (
    query_table,
    report_data,
    run_directory,
    statistics,
    variants,
    writers,
)
from cbert.schema import Schema
from tests.conftest import small
from tests.report_runs import SCHEMA, importance, queries, write_run


def labels(*configs):
    return variants.label([variants.identity(config) for config in configs])


def test_variants_are_named_by_what_differs():
    assert labels(small("none"), small("gsu")) == ["none", "gsu"]
    rates = [small("gsu", optimizer__learning_rate=rate) for rate in (1e-3, 3e-3)]
    assert labels(*rates) == ["gsu learning_rate=0.001", "gsu learning_rate=0.003"]
    sizes = [small("gs"), small("gs", train__batch_size=8), small("gs", eval__batch_size=8)]
    assert labels(*sizes) == ["gs", "gs train.batch_size=8", "gs eval.batch_size=8"]
    grid = [
        small("gs", train__steps=steps, model__dropout=rate)
        for steps in (6, 7)
        for rate in (0.0, 0.1)
    ]
    assert labels(*grid) == [
        "gs dropout=0.0 steps=6",
        "gs dropout=0.1 steps=6",
        "gs dropout=0.0 steps=7",
        "gs dropout=0.1 steps=7",
    ]


def test_a_field_is_named_where_it_tells_variants_apart():
    """A field is left out where most variants of its method, and all others, have its value."""
    readings = [small("c"), small("c", model__c__reading="fnn")]
    assert labels(small("none"), *readings) == ["none", "c reading=project", "c reading=fnn"]
    rates = small("none"), small("gsu", optimizer__learning_rate=3e-4)
    assert labels(*rates) == ["none learning_rate=0.001", "gsu learning_rate=0.0003"]


def test_controls_are_named_by_their_role():
    constant = small("gs")
    constant.unlock()
    constant.model.constant_context = True
    plain = [small("none"), small("gs")]
    wide = small("none", model__feed_forward=48)
    assert labels(*plain, constant, wide) == [
        "none",
        "gs",
        "gs, constant context",
        "none, wide",
    ]
    assert labels(*plain, wide, small("none", model__feed_forward=64)) == [
        "none feed_forward=32",
        "gs",
        "none feed_forward=48",
        "none feed_forward=64",
    ]


def test_controls_come_last_and_seeds_in_order(tmp_path):
    write_run(tmp_path, "none", 0, name="a", model__feed_forward=48)
    write_run(tmp_path, "gsu", 0, name="b")
    write_run(tmp_path, "c", 10, name="c")
    write_run(tmp_path, "c", 2, name="d")
    write_run(tmp_path, "none", 0, name="e", data__dir="elsewhere")
    data = report_data.load(tmp_path, "test", "none")
    assert list(data.variants) == ["none", "c", "gsu", "none, wide"]
    assert list(data.variants["c"].runs) == [2, 10]


def test_parameters_are_those_of_the_papers_count(tmp_path):
    write_run(tmp_path, "none", 0)
    write_run(tmp_path, "np", 0)
    by_label = report_data.load(tmp_path, "test", "none").variants
    d, f, c = 16, 32, 8
    block = 4 * (d * d + d) + 4 * d + (d * f + f) + (f * d + d)
    assert by_label["none"].parameters == block + d * d + d
    assert by_label["np"].parameters == block + d * d + d + c * d + d


def refusal(directory, base="none", split="test"):
    with pytest.raises(UserError) as caught:
        report_data.load(directory, split, base)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_directories_without_runs_are_refused(tmp_path):
    assert "holds no run" in refusal(tmp_path)
    assert "is not a directory" in refusal(tmp_path / "absent")
    run = write_run(tmp_path, "none", 0, evaluated=False)
    assert "give the one that holds the runs" in refusal(run)
    assert "none-0, for example, is not evaluated on test" in refusal(tmp_path)
    assert "evaluate it on the validation split" in refusal(tmp_path, split="validation")


OTHER_ITEMS = dataclasses.replace(SCHEMA, items=("x", "y", "z", *SCHEMA.items[3:]))
OTHER_COUNTS = dataclasses.replace(SCHEMA, counts=(8, *SCHEMA.counts[1:]))
OTHER_FEATURES = Schema(SCHEMA.kind, 4, SCHEMA.items, SCHEMA.counts, SCHEMA.features[:1])
INCOMPARABLE = {
    "data": ({"data__name": "large"}, "trained on different data, small and large"),
    "vocabulary": ({"schema": OTHER_ITEMS}, "have different vocabularies"),
    "counts": ({"schema": OTHER_COUNTS}, "have different vocabularies"),
    "features": ({"schema": OTHER_FEATURES}, "have different features"),
    "prepared data": ({"settings": {"data": "new"}}, "data is small and new"),
    "split": ({"settings": {"split": "train"}}, "split is test and train"),
    "masking": ({"settings": {"masking": "one"}}, "masking is each and one"),
    "checkpoint": ({"settings": {"checkpoint": "last"}}, "checkpoint is best and last"),
    "queries": (
        {"asked_queries": {**queries(), "id": queries("x")["id"]}},
        "different queries",
    ),
    "twins": ({"method": "none", "seed": 0, "name": "twin"}, "the same config and seed 0"),
}


@pytest.mark.parametrize("name", INCOMPARABLE)
def test_runs_that_cannot_be_compared_are_named(tmp_path, name):
    changed, message = INCOMPARABLE[name]
    first = write_run(tmp_path, "none", 0)
    second = write_run(tmp_path, **{"method": "gs", "seed": 0, "name": "other", **changed})
    error = refusal(tmp_path)
    assert message in error
    assert str(first) in error
    assert str(second) in error


def test_an_unknown_base_is_refused_with_the_known_ones(tmp_path):
    write_run(tmp_path, "none", 0)
    write_run(tmp_path, "gs", 0)
    write_run(tmp_path, "np", 0, evaluated=False)
    assert "use one of: none; gs" in refusal(tmp_path, base="gsu")
    assert "the base variant 'np' has no finished and evaluated run" in refusal(
        tmp_path, base="np"
    )
    data = report_data.load(tmp_path, "test", "gs")
    assert data.base == "gs"
    assert {(one.base, one.other) for one in statistics.pairs(data)} == {("gs", "none")}


def test_damaged_files_are_named(tmp_path):
    run = write_run(tmp_path, "none", 0)
    table, summary = run / "eval" / "test.parquet", run / "eval" / "test.json"
    whole = json.loads(summary.read_text())
    summary.write_text(json.dumps({**whole, "queries": 7}))
    assert "160 rows where test.json says 7 queries" in refusal(tmp_path)
    summary.write_text(json.dumps({**whole, "step": 3}))
    assert "evaluated at step 3, but its best is now step 6" in refusal(tmp_path)
    summary.write_text('{"data": 1}')
    assert f"{summary}: lacks 'split'" in refusal(tmp_path)
    summary.write_text("{")
    assert f"{summary}: damaged" in refusal(tmp_path)
    summary.write_text(json.dumps(whole))
    with_null = {**queries(), "group": [None, *queries()["group"][1:]]}
    write_run(tmp_path / "other", "none", 0, asked_queries=with_null)
    assert "the column 'group' is not text in every row" in refusal(tmp_path / "other")
    table.write_bytes(table.read_bytes()[:-9])
    assert f"{table}: damaged" in refusal(tmp_path)


def test_one_long_name_in_a_table_takes_no_room_for_all(tmp_path):
    """As strings of NumPy the 160 names would take 64 MB."""
    long = {**queries(), "group": ["a" * 100_000, *queries()["group"][1:]]}
    run = run_directory.read(write_run(tmp_path, "none", 0, asked_queries=long), "test")
    tracemalloc.start()
    read = query_table.read_queries(run)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.bincount(read.groups).tolist() == [1, 7, *[8] * 19]
    assert most < 10_000_000


def test_what_is_missing_is_listed_and_not_averaged(tmp_path):
    write_run(tmp_path, "none", 0)
    write_run(tmp_path, "none", 1)
    write_run(tmp_path, "gs", 0)
    write_run(tmp_path, "gs", 1, finished=False)
    write_run(tmp_path, "gsu", 0, evaluated=False)
    (tmp_path / "np-0").mkdir()
    (tmp_path / "np-0" / "log.txt").write_text("error: ...")
    data = report_data.load(tmp_path, "test", "none")
    measured = {label: list(variant.measured) for label, variant in data.variants.items()}
    assert measured == {"none": [0, 1], "gs": [0]}
    assert data.missing == [
        "gs, seed 1 (gs-1): not finished (step 3 of 6)",
        "gsu, seed 0 (gsu-0): not evaluated on test",
        "gsu, seed 1: no run, but 2 other variants have one",
        "gsu: in no table, because none of its runs can be used",
        f"np-0: not a run, because it holds no config.json; {tmp_path}/np-0/log.txt says why",
    ]


def test_importance_is_missing_where_there_is_a_context(tmp_path):
    write_run(tmp_path, "gs", 0, feature_importance=importance(0.3))
    for method in ("none", "gsu"):
        write_run(tmp_path, method, 0)
    write_run(tmp_path, "gs", 0, name="constant", model__constant_context=True)
    missing = report_data.load(tmp_path, "test").missing
    assert missing == ["gsu-0: evaluated without feature importance"]


def test_only_its_mark_says_that_training_is_over(tmp_path):
    write_run(tmp_path, "none", 0)
    assert report_data.load(tmp_path, "test", "none").missing == []
    (write_run(tmp_path, "none", 1) / "finished.json").unlink()
    missing = report_data.load(tmp_path, "test", "none").missing
    assert missing[0] == "none, seed 1 (none-1): not finished (step 6 of 6)"


def test_identical_predictions_are_level_and_seeds_decide_what_is_better(tmp_path):
    for seed in range(5):
        for name in ("none", "c", "gs"):
            write_run(tmp_path, name, seed, gain=0.5 if name == "gs" else 0.0)
        table = (tmp_path / f"none-{seed}" / "eval" / "test.parquet").read_bytes()
        (tmp_path / f"c-{seed}" / "eval" / "test.parquet").write_bytes(table)
    data = report_data.load(tmp_path, "test", "none")
    differences = {(a.base, a.other, a.metric.name): a for a in statistics.pairs(data)}
    same = differences["none", "c", "cross_entropy"]
    assert (same.mean, same.low, same.high, same.p, same.verdict) == (0, 0, 0, 1.0, "level")
    assert differences["none", "c", "recall@1"].verdict == "undecided"
    runs, name = statistics._measured(data), data.metric.name
    for seed in range(5):  # A difference in the last bit is one of rounding.
        runs["c", seed][0][name] = np.nextafter(runs["none", seed][0][name], 9)
    rounded = statistics._difference(data, data.metric, ("none", "c", [*range(5)]), runs)
    assert (rounded.mean, rounded.p) == (0, 1.0)
    alone = dataclasses.replace(rounded, error=None, freedom=0.0, low=-np.inf, high=np.inf)
    assert ",0.0,,0.0,,,1.0," in writers.paired_csv([alone])
    ahead = differences["none", "gs", "cross_entropy"]
    assert ahead.better == "gs"
    # Holm's correction: two pairs have equal p values, and the third one has 1.
    assert ahead.p_holm == pytest.approx(3 * ahead.p)
    assert -0.5 * 1.3 < ahead.low < -0.5 < ahead.high < -0.5 * 0.7
    wide = report_data.load(tmp_path, "test", "none", margin=1.0)
    level = [one for one in statistics.pairs(wide) if one.metric == wide.metric]
    assert [one.verdict for one in level] == ["level"] * 3
    corrected = [0.0, 2 * level[1].p_level, 2 * level[2].p_level]
    assert [one.p_level_holm for one in level] == pytest.approx(corrected)
    assert 0 < level[1].p_level < 1e-3


def test_options_of_other_methods_make_no_variant(tmp_path):
    write_run(tmp_path, "gs", 0, name="a")
    write_run(tmp_path, "gs", 1, name="b", model__gsu__update_norm="before")
    write_run(tmp_path, "gs", 0, name="e", model__gsu__update_norm="before")
    write_run(tmp_path, "gsu", 0, name="c")
    write_run(tmp_path, "gsu", 0, name="d", model__gsu__update_norm="before")
    loaded = report_data.load(tmp_path, "test").variants
    assert {label: list(one.runs) for label, one in loaded.items()} == {
        "gs": [0, 1],
        "gsu update_norm=after": [0],
        "gsu update_norm=before": [0],
    }


def test_of_two_that_are_the_same_run_the_one_that_is_evaluated_counts(tmp_path):
    write_run(tmp_path, "gs", 0, name="a", evaluated=False, model__gsu__update_norm="before")
    write_run(tmp_path, "gs", 0, name="b")
    loaded = report_data.load(tmp_path, "test")
    assert loaded.variants["gs"].runs[0].name == "b"
    assert not loaded.missing


def test_a_method_is_the_base_by_whatever_its_only_variant_is_called(tmp_path):
    """Each method has the rate that suits it, and so all have a rate in their names."""
    write_run(tmp_path, "none", 0, name="a", optimizer__learning_rate=1e-2)
    write_run(
        tmp_path, "none", 0, name="b", optimizer__learning_rate=1e-2, model__feed_forward=48
    )
    write_run(tmp_path, "gs", 0, name="c", optimizer__learning_rate=1e-3)
    assert report_data.load(tmp_path, "test").base == "none learning_rate=0.01"
    data = report_data.load(tmp_path, "test", "none")
    assert data.base == "none learning_rate=0.01"
    assert "none learning_rate=0.01, wide" in data.variants
    write_run(tmp_path, "none", 0, name="d", optimizer__learning_rate=1e-1)
    assert "no variant is called 'none'; use one of" in refusal(tmp_path)
    data = report_data.load(tmp_path, "test")  # None stands for the method alone.
    assert data.base == next(iter(data.variants))


@pytest.mark.parametrize(("items", "last"), [(5, "recall@1"), (250, "recall@5")])
def test_a_recall_that_all_predictions_have_is_in_no_table(tmp_path, items, last):
    few = dataclasses.replace(SCHEMA, items=SCHEMA.items[:items], counts=SCHEMA.counts[:items])
    for method in ("none", "gs"):
        write_run(tmp_path, method, 0, schema=few)
    assert report_data.load(tmp_path, "test").shown[-1].name == last
