"""Precision, recall and F1 of each label: by hand, as in seqeval, and as evaluate says."""

import collections
import csv
import dataclasses

import numpy as np
import pyarrow.parquet
import pytest

from cbert.evaluation import label_tables, leaderboard
from cbert.report import label_tables as report_tables
from cbert.report import report_data
from cbert.tasks import label_counts
from cbert.tasks.label_metrics import macro_f1
from cbert.training import loop
from tests.conftest import run
from tests.test_text_reports import TARGETS, evaluated, write_run
from tests.text_data import prepare_texts, small_text

TASKS = ("classification", "multi_label", "tagging", "regression")
LABELS = np.array([0, 0, 0, 0, 2, 2, 3, 3, 3])
PREDICTIONS = np.array([0, 3, 3, 1, 2, 0, 3, 3, 3])


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for task in TASKS:
        prepare_texts(folder, TARGETS[task])
    return folder


def test_single_labels_by_hand():
    counts = label_counts.of_labels("abcde", LABELS, PREDICTIONS)
    # b is predicted alone, and e neither occurs nor is predicted.
    assert counts.names == ("a", "d", "c", "b")
    assert counts.support.tolist() == [4, 3, 2, 0]
    assert counts.predicted.tolist() == [2, 5, 1, 1]
    assert counts.correct.tolist() == [1, 3, 1, 0]
    assert counts.precision.tolist() == [1 / 2, 3 / 5, 1, 0]
    assert counts.recall.tolist() == [1 / 4, 1, 1 / 2, 0]
    assert counts.f1 == pytest.approx([1 / 3, 3 / 4, 2 / 3, 0])
    assert list(counts.confusions.items()) == [
        (("a", "d"), 2),
        (("a", "b"), 1),
        (("c", "a"), 1),
    ]


def test_single_labels_are_counted_as_one_counts_them_one_by_one():
    random = np.random.default_rng(0)
    names = [f"label {n}" for n in range(40)]
    labels, predictions = random.integers(30, size=500), random.integers(10, 40, size=500)
    pairs = [(names[a], names[b]) for a, b in zip(labels, predictions, strict=True)]
    counts = label_counts.of_labels(names, labels, predictions)
    assert len(counts) == 40
    assert (np.diff(counts.support) <= 0).all()
    for n, name in enumerate(counts.names):
        assert counts.correct[n] == pairs.count((name, name))
        assert counts.support[n] == sum(true == name for true, _ in pairs)
        assert counts.predicted[n] == sum(own == name for _, own in pairs)
    assert counts.confusions == collections.Counter(pair for pair in pairs if len({*pair}) == 2)
    frequencies = list(counts.confusions.values())
    assert frequencies == sorted(frequencies, reverse=True)
    macro = macro_f1(labels, predictions)(np.ones(500))
    assert counts.f1.mean() == pytest.approx(macro["macro_f1"])


def test_without_a_wrong_label_there_are_no_confusions(tmp_path):
    counts = label_counts.of_labels("ab", LABELS[:4], LABELS[:4])
    assert (counts.names, counts.confusions) == (("a",), {})
    (tmp_path / "eval").mkdir()
    label_tables.write(counts, tmp_path, "test")
    assert read(tmp_path, "test-confusions") == []
    assert "prediction" not in label_tables.format_labels(counts, "test")


def test_spans_are_counted_as_by_seqeval():
    metrics = pytest.importorskip("seqeval.metrics")
    random = np.random.default_rng(0)
    tags = ["O", "O", "B-x", "I-x", "B-y", "I-y", "B-z"]
    truth = random.choice(tags[:-1], size=(50, 12)).tolist()
    predicted = np.where(random.random((50, 12)) < 0.8, truth, random.choice(tags, (50, 12)))
    counts = label_counts.of_spans(truth, predicted.tolist())
    expected = metrics.classification_report(
        truth, predicted.tolist(), output_dict=True, zero_division=0
    )
    assert (
        {*counts.names}
        == {"x", "y", "z"}
        == {*expected} - {*("micro avg", "macro avg", "weighted avg")}
    )
    for name, *values in zip(
        counts.names, counts.precision, counts.recall, counts.f1, counts.support, strict=True
    ):
        of_seqeval = [
            expected[name][key] for key in ("precision", "recall", "f1-score", "support")
        ]
        assert values == pytest.approx(of_seqeval)
    assert counts.f1.mean() == pytest.approx(expected["macro avg"]["f1-score"])
    assert 0 < counts.f1[0] < 1


def test_spans_by_hand():
    truth = [["B-x", "I-x", "O", "B-y"], ["B-x", "O", "O", "O"]]
    predicted = [["B-x", "I-x", "O", "B-x"], ["O", "O", "O", "O"]]
    counts = label_counts.of_spans(truth, predicted)
    assert counts.names == ("x", "y")
    assert (counts.support.tolist(), counts.predicted.tolist()) == ([2, 1], [2, 0])
    assert counts.f1.tolist() == [1 / 2, 0]
    assert counts.confusions is None
    assert len(label_counts.of_spans([["O", "O"]], [["O", "O"]])) == 0


def test_the_printed_tables_are_short():
    labels = np.arange(25)
    counts = label_counts.of_labels([f"label {n}" for n in labels], labels, labels[::-1])
    first, second = label_tables.format_labels(counts, "test-last").split("\n\n")
    assert first.splitlines()[0].split() == [
        *("label", "precision", "%", "recall", "%", "F1", "%", "support")
    ]
    assert first.splitlines()[-1] == "and 5 more, in eval/test-last-labels.csv"
    assert len(first.splitlines()) == 1 + 20 + 1
    assert second.splitlines()[-1] == "and 14 more, in eval/test-last-confusions.csv"
    assert len(second.splitlines()) == 1 + 10 + 1
    assert len({len(line) for line in first.splitlines()[:-1]}) == 1


def test_the_files_hold_labels_of_any_characters(tmp_path):
    names = ['a "quoted", long\nlabel', "NA"]
    counts = label_counts.of_labels(names, np.array([0, 0, 1]), np.array([0, 1, 1]))
    (tmp_path / "eval").mkdir()
    label_tables.write(counts, tmp_path, "test")
    assert [row["label"] for row in read(tmp_path, "test-labels")] == names
    confusion = {"label": names[0], "prediction": "NA", "queries": "1"}
    assert read(tmp_path, "test-confusions") == [confusion]
    # A line for each row, and one between the tables.
    assert len(label_tables.format_labels(counts, "test").splitlines()) == 3 + 1 + 2


def read(workdir, name):
    with (workdir / "eval" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["classification", "multi_label"])
def test_the_mean_f1_of_labels_is_the_macro_f1(directory, name):
    evaluation = evaluated(directory, name, "gs", 0)
    macro = evaluation.summarize()["macro_f1"]["mean"]
    assert evaluation.label_counts.f1.mean() == pytest.approx(macro)


def test_labels_that_training_lacks_are_one_that_is_missed(directory):
    evaluation = evaluated(directory, "multi_label", "gs", 0)
    unknown = np.full(len(evaluation.queries), 2)
    targets = {**evaluation.queries.targets, "unknown_labels": unknown}
    queries = dataclasses.replace(evaluation.queries, targets=targets)
    changed = dataclasses.replace(evaluation, queries=queries)
    counts = changed.label_counts
    assert (counts.names[0], counts.support[0], counts.f1[0]) == ("(unknown)", unknown.sum(), 0)
    assert counts.names[1:] == evaluation.label_counts.names
    macro = changed.summarize()["macro_f1"]["mean"]
    assert counts.f1.mean() == pytest.approx(macro)


def test_where_all_is_right_a_calibration_error_has_no_standard_error(directory):
    evaluation = evaluated(directory, "classification", "gs", 0)
    assert evaluation.summarize()["calibration_error"]["standard_error"] > 0.01
    labels = evaluation.queries.targets["label"]
    right = {**evaluation.predictions["model"], "prediction": labels}
    changed = dataclasses.replace(evaluation, predictions={"model": right})
    summary = changed.summarize()
    doubt = 1 - right["probability"].mean()
    expected = {"mean": pytest.approx(doubt, rel=1e-5), "standard_error": None}
    assert summary["calibration_error"] == expected
    # A report takes the errors of its baselines from here, and `score` those of its rows.
    baseline = changed.measured["model"].summarize(changed.groups)
    assert baseline["calibration_error"] == expected
    row = leaderboard.estimates([changed])["calibration_error"]
    assert (row.error, row.interval()) == (np.inf, (-np.inf, np.inf))
    assert summary["accuracy"] == {"mean": 1.0, "standard_error": 0.0}


@pytest.mark.parametrize("name", TASKS)
def test_a_report_has_the_labels_of_each_variant(directory, tmp_path, name):
    for method, seed in (("none", 0), ("gs", 0), ("gs", 1)):
        write_run(tmp_path, directory, name, method, seed)
    table = report_tables.label_table(report_data.load(tmp_path, "test"))
    if name == "regression":
        assert table is None
        return
    assert table.head == ("label", "support", "none", "gs")
    runs = [read(tmp_path / run, "test-labels") for run in ("none-0", "gs-0", "gs-1")]
    by_run = [{row["label"]: row for row in rows} for rows in runs]
    assert [row[0] for row in table.rows] == list(by_run[1])
    for label, support, none, gs in table.rows:
        plain, one, other = (100 * float(rows[label]["f1"]) for rows in by_run)
        assert none == f"{plain:.2f}"
        assert gs == f"{(one + other) / 2:.2f} ± {abs(one - other) / 2:.2f}"
        assert {support} == {rows[label]["support"] for rows in by_run}


def test_a_report_leaves_out_labels_that_are_rare_or_do_not_occur(directory, tmp_path):
    write_run(tmp_path, directory, "classification", "gs", 0)
    data = report_data.load(tmp_path, "test")
    variant, names = data.variants["gs"], [f"label {n}" for n in range(26)]
    for most, shown in ((25, 20), (5, 5)):
        # The last label is predicted alone.
        labels, predictions = np.arange(most), np.append(np.arange(most - 1), 25)
        counts = label_counts.of_labels(names, labels, predictions)
        measured = dataclasses.replace(variant.measured[0], label_counts=counts)
        changed = dataclasses.replace(variant, measured={0: measured})
        table = report_tables.label_table(dataclasses.replace(data, variants={"gs": changed}))
        assert [row[0] for row in table.rows] == names[:shown]
        said = "the labels that occur" if most == 5 else "the 20 most frequent of the 25 labels"
        assert f"F1, % of {said}" in table.caption


def test_evaluate_prints_and_writes_the_labels(directory, tmp_path):
    workdir = tmp_path / "run"
    loop.train(small_text("classification", directory), workdir)
    printed = run("evaluate", f"--workdir={workdir}").stdout
    table = pyarrow.parquet.read_table(workdir / "eval" / "test.parquet").to_pydict()
    pairs = collections.Counter(zip(table["label"], table["prediction"], strict=True))
    rows = read(workdir, "test-labels")
    assert {row["label"] for row in rows} == {"blue", "warm", "cold"}
    lines = [line.split() for line in printed.splitlines()]
    for row in rows:
        label, correct = row["label"], pairs[row["label"], row["label"]]
        support = sum(count for (true, _), count in pairs.items() if true == label)
        predicted = sum(count for (_, own), count in pairs.items() if own == label)
        assert (int(row["support"]), int(row["predicted"])) == (support, predicted)
        measured = [float(row[name]) for name in ("precision", "recall", "f1")]
        f1 = 2 * correct / (support + predicted)
        assert measured == pytest.approx([correct / max(predicted, 1), correct / support, f1])
        assert [label, *(f"{100 * each:.2f}" for each in measured), str(support)] in lines
    wrong = {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
    assert wrong  # Six steps teach little.
    for row in read(workdir, "test-confusions"):
        assert wrong.pop((row["label"], row["prediction"])) == int(row["queries"])
        assert [row["label"], row["prediction"], row["queries"]] in lines
    assert not wrong
