"""The report's statistics and names, computed by hand, and the sweeps that it refuses."""

import json
import sys

import numpy as np
import pytest

from cbert.errors import UserError
from cbert.evaluation import metrics
from cbert.random_streams import stream
from cbert.report import report_data, slices, statistics, tables, variants, writers
from cbert.report.sections import Section
from cbert.schema import Schema
from cbert.tasks import ranking
from tests.conftest import small
from tests.report_runs import SCHEMA, TIME, queries, write_run


def test_holm_by_hand():
    corrected = statistics.holm(np.array([0.01, 0.04, 0.03, 0.005]))
    assert corrected == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm(np.array([0.6, 0.5])) == pytest.approx([1.0, 1.0])


def test_standard_error_over_seeds_by_hand():
    mean = statistics.over_seeds([1.0, 2.0, 4.0])
    assert mean.mean == pytest.approx(7 / 3)
    assert mean.error == pytest.approx(np.sqrt((16 + 1 + 25) / 9 / 2) / np.sqrt(3))
    assert statistics.over_seeds([1.5]) == statistics.Mean(1.5, None, "seeds", 1)


@pytest.mark.parametrize(
    ("metric", "low", "high", "by_seed", "sign"),
    [
        ("cross_entropy", -0.3, -0.1, [-0.2, -0.2], 1),
        ("cross_entropy", 0.1, 0.3, [0.2, 0.2], -1),
        ("recall@5", 0.1, 0.3, [0.2, 0.2], 1),
        ("recall@5", -0.3, -0.1, [-0.2], -1),
        ("recall@1", -0.1, 0.3, [0.2, 0.2], 0),
        ("recall@1", 0.0, 0.3, [0.2, 0.2], 0),
        ("recall@250", 0.1, 0.3, [0.5, -0.1], 0),
        ("recall@250", 0.1, 0.3, [0.5, 0.0], 0),
    ],
)
def test_better_needs_the_interval_and_every_seed(metric, low, high, by_seed, sign):
    (metric,) = [one for one in ranking.METRICS if one.name == metric]
    assert statistics.better(metric, low, high, by_seed) == sign


def test_bootstrap_p_value_by_hand():
    assert statistics.p_value(np.array([1.0] * 9 + [-1.0])) == pytest.approx(2 * 2 / 11)
    assert statistics.p_value(np.ones(10)) == pytest.approx(2 / 11)
    assert statistics.p_value(np.zeros(10)) == 1.0


def test_bootstrap_draws_groups_one_by_one():
    sums, counts = np.array([[1.0, 5.0], [2.0, 0.0], [4.0, 1.0]]), np.array([1.0, 2.0, 1.0])
    means = metrics.bootstrap_means(sums, counts, seed=3, draws=50)
    random = stream("bootstrap", 3)
    for row in means:
        chosen = random.integers(3, size=3)
        np.testing.assert_allclose(row, sums[chosen].sum(axis=0) / counts[chosen].sum())


def labels(*configs):
    return variants.label([variants.identity(config) for config in configs])


def test_variants_are_named_by_what_differs():
    assert labels(small("none"), small("gsu")) == ["none", "gsu"]
    rates = [small("gsu", optimizer__learning_rate=rate) for rate in (1e-3, 3e-3)]
    assert labels(*rates) == ["gsu learning_rate=0.001", "gsu learning_rate=0.003"]
    sizes = [small("gs"), small("gs", train__batch_size=8), small("gs", eval__batch_size=8)]
    assert labels(*sizes) == [
        "gs eval.batch_size=64 train.batch_size=32",
        "gs eval.batch_size=64 train.batch_size=8",
        "gs eval.batch_size=8 train.batch_size=32",
    ]


def test_a_field_is_named_where_it_tells_variants_apart():
    """A field is left out for a method with one value that every other method has, too."""
    readings = [small("c"), small("c", model__c__reading="fnn")]
    assert labels(small("none"), *readings) == ["none", "c reading=project", "c reading=fnn"]
    rates = small("none"), small("gsu", optimizer__learning_rate=3e-4)
    assert labels(*rates) == ["none learning_rate=0.001", "gsu learning_rate=0.0003"]


def test_baseline_variants_are_named_by_their_role():
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
    wider = small("none", model__feed_forward=64)
    assert labels(*plain, wide, wider) == [
        "none feed_forward=32",
        "gs",
        "none feed_forward=48",
        "none feed_forward=64",
    ]


def test_baseline_variants_come_last_and_seeds_in_order(tmp_path):
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
    assert by_label["none"].parameters == 2 * block + d * d + d
    assert by_label["np"].parameters == 2 * block + d * d + d + c * d + d


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


OTHER_ITEMS = Schema(SCHEMA.kind, 4, ("x", "y", "z"), SCHEMA.counts, SCHEMA.features)
OTHER_FEATURES = Schema(SCHEMA.kind, 4, SCHEMA.items, SCHEMA.counts, SCHEMA.features[:1])
INCOMPARABLE = {
    "data": ({"data__name": "large"}, "trained on different data, small and large"),
    "vocabulary": ({"schema": OTHER_ITEMS}, "have different vocabularies"),
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
    assert report_data.load(tmp_path, "test", "gs").base == "gs"


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
    table.write_bytes(table.read_bytes()[:-9])
    assert f"{table}: damaged" in refusal(tmp_path)


def test_what_is_missing_is_listed_and_not_averaged(tmp_path):
    write_run(tmp_path, "none", 0)
    write_run(tmp_path, "none", 1)
    write_run(tmp_path, "gs", 0)
    write_run(tmp_path, "gs", 1, finished=False)
    write_run(tmp_path, "gsu", 0, evaluated=False)
    (tmp_path / "np-0").mkdir()
    data = report_data.load(tmp_path, "test", "none")
    assert {label: list(v.measured) for label, v in data.variants.items()} == {
        "none": [0, 1],
        "gs": [0],
    }
    assert data.missing == [
        "gs, seed 1 (gs-1): not finished (step 3 of 6)",
        "gsu, seed 0 (gsu-0): not evaluated on test",
        "gsu, seed 1: no run, but 2 other variants have one",
        "gsu: in no table, because none of its runs can be used",
        "np-0: not a run, because it holds no config.json",
    ]


def test_only_its_mark_says_that_training_is_over(tmp_path):
    write_run(tmp_path, "none", 0)
    assert report_data.load(tmp_path, "test", "none").missing == []
    (write_run(tmp_path, "none", 1) / "finished.json").unlink()
    missing = report_data.load(tmp_path, "test", "none").missing
    assert missing[0] == "none, seed 1 (none-1): not finished (step 6 of 6)"


def test_identical_predictions_are_never_better(tmp_path):
    for name in ("none", "c", "gs"):
        write_run(tmp_path, name, 0, gain=0.5 if name == "gs" else 0.0)
    table = (tmp_path / "none-0" / "eval" / "test.parquet").read_bytes()
    (tmp_path / "c-0" / "eval" / "test.parquet").write_bytes(table)
    differences = {
        (one.base, one.other, one.metric.name): one
        for one in statistics.pairs(report_data.load(tmp_path, "test", "none"))
    }
    same = differences["none", "c", "cross_entropy"]
    assert (same.mean, same.low, same.high, same.p, same.better) == (0, 0, 0, 1.0, None)
    ahead = differences["none", "gs", "cross_entropy"]
    assert ahead.better == "gs"
    assert ahead.p == pytest.approx(2 / 10001)
    assert ahead.p_holm == pytest.approx(3 * 2 / 10001)


def test_slices_by_hand(tmp_path):
    write_run(tmp_path, "none", 0)
    write_run(tmp_path, "gs", 0, gain=0.5)
    data = report_data.load(tmp_path, "test", "none")
    gain = statistics.gain(data, "gs")
    visible = slices.by_visible_items(data)
    assert visible.queries == {"1": 106, "2": 54}
    inside = np.array(queries()["visible_items"]) == 2
    assert visible.gains["gs"]["2"].mean == pytest.approx(gain[inside].mean())
    assert "none" not in visible.gains
    features = slices.by_features(data)
    assert features[TIME].queries == dict.fromkeys(SCHEMA.features[0].values, 80)
    # The age of twelve examples is missing: 24 queries are too few for a mean.
    assert list(features["age"].queries) == ["20 to 29", "30 to 39", "40 to 49", "50 to 59"]
    assert sum(features["age"].queries.values()) == 2 * (80 - 12)


def test_text_is_escaped():
    text = "<b>a</b> | x_1 & 50% \\ ~^ $#{}\n*[]`\u202eevil"
    section = Section(text, [text], [text], [tables.Table(text, ("", text), [(text, text)])])
    page = writers.page(text, [section], {})
    escaped = "&lt;b&gt;a&lt;/b&gt; | x_1 &amp; 50% \\ ~^ $#{} *[]`\ufffdevil"
    # Title, heading, section heading, paragraph, point, caption, column name, row name, cell.
    assert page.count(escaped) == 9
    assert "<b>" not in page
    assert "\u202e" not in page
    assert tables.markdown_text(text) == (
        r"&lt;b&gt;a&lt;/b&gt; \| x\_1 &amp; 50% \\ \~^ \$\#{} \*\[\]\`" + "\ufffdevil"
    )
    assert tables.latex_text("a_b & 5% \\ ± {$}") == (
        r"a\_b \& 5\% \textbackslash{} $\pm$ \{\$\}"
    )


@pytest.mark.parametrize("library", ["jinja2", "matplotlib", "pandas", "tabulate"])
def test_without_a_library_one_line_says_what_to_install(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=r'pip install "\.\[report\]"'):
        writers.check_libraries()
