"""Reports of the tasks of texts say what their evaluations say."""

import csv
import dataclasses
import json

import numpy as np
import pyarrow.parquet
import pytest
import scipy.stats

from cbert import tasks
from cbert.errors import UserError
from cbert.evaluation import (
    compare,
    evaluation_files,
    leaderboard,
    metrics,
    task_baselines,
)
from cbert.evaluation.evaluation import Evaluation
from cbert.report import report_data, statistics, writers
from cbert.schema import schema_file
from cbert.tasks.classification import Classification
from cbert.training import config as config_lib
from cbert.training.evaluations import MODEL
from tests.report_runs import STEPS
from tests.text_data import load, prepare_texts, small_text

TARGETS = {
    "classification": "label",
    "multi_label": "labels",
    "regression": "number",
    "tagging": "tags",
    "span": "answer",
    "masked_language": "label",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for target in set(TARGETS.values()):
        prepare_texts(folder, target)
    return folder


def noise(task, split, queries, seed, gain):
    """Predictions by chance, whose log-probabilities rise by the gain."""
    random = np.random.default_rng(seed)
    count, length = len(queries), split.items.shape[1]
    target = task.schema.target
    size = len(target.values) if target else 0
    log_probability = -2 + gain + random.normal(0, 0.5, count)
    chosen = {
        "classification": lambda: {
            "prediction": random.integers(size, size=count),
            "probability": random.uniform(1 / 3, 1, count),
        },
        "multi_label": lambda: {"probability": random.random((count, size))},
        "tagging": lambda: {"tags": random.integers(size, size=(count, length))},
        "span": lambda: {"start": random.integers(2, size=count), "end": np.full(count, 1)},
        "masked_language": lambda: {"rank": random.integers(1, 9, count)},
    }
    if task.name == "regression":
        return {"prediction": random.normal(5 - gain, 3, count)}
    return {"log_probability": log_probability, **chosen[task.name]()}


def evaluated(directory, name, method, seed, gain=0.0):
    """The evaluation of a run that was never trained."""
    config = small_text(name, directory, TARGETS[name], method, seed=seed)
    split, schema = load(directory, TARGETS[name], "test")
    task = tasks.create(config, config_lib.build_model(config, schema), schema)
    queries = task.queries(split, "one")

    def other(split_name):
        return load(directory, TARGETS[name], split_name)[0]

    predictions = {
        MODEL: noise(task, split, queries, [seed, *map(ord, method)], gain),
        **task_baselines.predictions(task, other, schema, split, queries),
    }
    settings = {
        **{"split": "test", "masking": "one" if task.masks else "", "checkpoint": "best"},
        **{"data": config.data.name, "seed": seed},
    }
    return Evaluation(
        task, method, STEPS[-1], schema, split, queries, predictions, settings, "test"
    )


def write_run(folder, directory, name, method, seed, gain=0.0):
    """The run of `evaluated` as files; the evaluation's summary."""
    evaluation = evaluated(directory, name, method, seed, gain)
    config = small_text(name, directory, TARGETS[name], method, seed=seed)
    schema, task = evaluation.schema, evaluation.task
    path = folder / f"{method}-{seed}"
    path.mkdir(parents=True)
    summary = evaluation_files.summary(evaluation)
    evaluation_files.write(evaluation, summary, path)
    config_lib.save(config, path)
    schema_file.save(schema, path / "schema.json")
    deciding = task.metrics[0].name
    rows = [{"step": n, "split": "validation", deciding: 4 - 0.1 * n} for n in STEPS]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "finished.json").write_text(json.dumps({"step": STEPS[-1]}))
    return summary


@pytest.mark.parametrize("name", TARGETS)
def test_results_are_those_of_the_evaluations(directory, tmp_path, name):
    summaries = {
        (method, seed): write_run(tmp_path, directory, name, method, seed, gain)["results"]
        for method, seed, gain in (("none", 0, 0), ("gs", 0, 0.5), ("gs", 1, 0.4))
    }
    data = report_data.load(tmp_path, "test", "none")
    results = statistics.results(data)
    names = [metric.name for metric in data.queries.run.task.metrics]
    for metric in names:
        seeds = [summaries["gs", seed]["model"][metric]["mean"] for seed in (0, 1)]
        assert results["gs"][metric].mean == pytest.approx(np.mean(seeds))
    baselines = {one: of for one, of in summaries["none", 0].items() if one != "model"}
    assert baselines
    for baseline, expected in baselines.items():
        assert list(results[baseline]) == list(expected)
        for metric, one in expected.items():
            reported = results[baseline][metric]
            assert reported.mean == pytest.approx(one["mean"], abs=1e-9)
            assert reported.error == pytest.approx(one["standard_error"], abs=1e-9)
    differences = {one.metric.name: one for one in statistics.pairs(data)}
    assert list(differences) == names
    for metric, one in differences.items():
        two = (summaries[method, 0]["model"][metric]["mean"] for method in ("gs", "none"))
        assert one.mean == pytest.approx(np.subtract(*two), abs=1e-9)
        assert one.low <= one.mean <= one.high or one.mean == 0
    if name == "regression":  # A hundredth of the variance, and so of R².
        assert data.margin == pytest.approx(0.01 * data.queries.run.schema.target.scale**2)
        assert report_data.load(tmp_path, "test", margin=3.0).margin == 3.0
    else:
        assert differences["cross_entropy"].high < 0
        assert data.margin == 0.01


def test_tokens_of_texts_that_have_numbers_have_the_margin_of_nats(
    directory, tmp_path, monkeypatch
):
    monkeypatch.setitem(TARGETS, "masked_language", "number")
    write_run(tmp_path, directory, "masked_language", "none", 0)
    assert report_data.load(tmp_path, "test").margin == 0.01


def test_a_slice_whose_tags_are_all_unknown_has_no_means(directory):
    evaluation = evaluated(directory, "tagging", "gs", 0)
    moods = [json.loads(context).get("mood") for context in evaluation.split.contexts]
    cold = np.array([mood == "cold" for mood in moods])[evaluation.queries.rows]
    weights = np.where(cold, 0, evaluation.queries.weights)
    queries = dataclasses.replace(evaluation.queries, weights=weights)
    changed = dataclasses.replace(evaluation, queries=queries)
    by_mood = evaluation_files.summary(changed, ("mood",))["by_mood"]
    assert by_mood["warm"]["cross_entropy"]["mean"] > 0
    assert by_mood["cold"]["queries"] == cold.sum() > 0
    assert "cross_entropy" not in by_mood["cold"]
    assert "span_f1" in by_mood["cold"]
    json.dumps(by_mood, allow_nan=False)
    mood = changed.schema.feature("mood")
    assert set(leaderboard.slices(changed, mood)) == {"warm", "ambiguous texts"}


def test_the_error_of_a_metric_that_is_no_mean_is_from_the_influence_of_groups(
    directory, tmp_path
):
    for method in ("none", "gs"):
        write_run(tmp_path, directory, "classification", method, 0)
    data = report_data.load(tmp_path, "test", "none")
    (one,) = [one for one in statistics.pairs(data) if one.metric.name == "macro_f1"]
    tables = {method: evaluate_table(tmp_path / f"{method}-0") for method in ("none", "gs")}
    groups = metrics.group_codes(tables["none"]["group"])
    count = groups.max() + 1

    def difference(group, weight):
        """That of macro F1 when the queries of a group have a weight."""
        weights = np.where(groups == group, weight, 1.0)
        scores = {}
        for method, table in tables.items():
            true, predicted = (np.array(table[key]) for key in ("label", "prediction"))
            f1 = [
                2
                * weights[(true == label) & (predicted == label)].sum()
                / (weights[true == label].sum() + weights[predicted == label].sum())
                for label in set(true) | set(predicted)
            ]
            scores[method] = np.mean(f1)
        return scores["gs"] - scores["none"]

    influence = [
        (difference(group, 1.001) - difference(group, 0.999)) / 0.002 for group in range(count)
    ]
    assert one.error == pytest.approx(np.sqrt(count) * np.std(influence, ddof=1), rel=1e-5)
    reach = scipy.stats.t.ppf(0.975, count - 1) * one.error
    assert [one.low, one.high] == pytest.approx([one.mean - reach, one.mean + reach])


def evaluate_table(path):
    return pyarrow.parquet.read_table(path / "eval" / "test.parquet").to_pydict()


def test_the_report_of_texts_has_its_own_words_and_a_reliability_diagram(directory, tmp_path):
    for method in ("none", "gs"):
        write_run(tmp_path, directory, "classification", method, 0)
    data = report_data.load(tmp_path, "test", "none")
    shown = writers.write(data)
    assert "macro-F1 %" in shown
    folder = tmp_path / "report"
    assert {path.stem for path in folder.glob("*.png")} == {
        *("methods", "differences", "learning_curves", "reliability"),
        *("gain_by_feature_01", "gain_by_feature_02"),
    }
    markdown = (folder / "report.md").read_text()
    assert "queries (one an example)" in markdown
    assert "their target is missing or was not seen in training" in markdown
    rows = list(csv.DictReader((folder / "results.csv").open(encoding="utf-8")))
    assert {row["name"] for row in rows} == {"none", "gs", "majority", "majority given context"}
    table = evaluate_table(tmp_path / "gs-0")
    right = np.array(table["label"]) == np.array(table["prediction"])
    reliability = data.variants["gs"].measured[0].reliability
    assert reliability.sum(axis=1) == pytest.approx(
        [len(right), right.sum(), np.sum(table["probability"])]
    )


def test_runs_of_two_tasks_are_not_compared(directory, tmp_path):
    for name, method in (("classification", "none"), ("masked_language", "gs")):
        write_run(tmp_path, directory, name, method, 0)
    with pytest.raises(UserError, match="different tasks, masked_language and classification"):
        report_data.load(tmp_path, "test", "none")
    runs = sorted(str(path) for path in tmp_path.iterdir() if path.is_dir())
    with pytest.raises(UserError, match="of different tasks, masked_language and class"):
        compare.check_comparable(runs)
    compare.check_comparable(runs[:1])


class Focal(Classification):
    name = "focal"

    def loss(self, params, batch, rngs):
        return 0.0, {}


class SharedErrors(Focal):
    name = "shared_errors"

    def metric_values(self, predictions, queries):
        return {}


def test_a_task_is_compared_with_the_one_that_it_extends(directory, tmp_path, monkeypatch):
    for task in (Focal, SharedErrors):
        monkeypatch.setitem(tasks.TASKS, task.name, task)
    for method, gain in (("none", 0.0), ("gs", 0.5)):
        write_run(tmp_path, directory, "classification", method, 0, gain)
    runs = [str(tmp_path / name) for name in ("none-0", "gs-0")]
    config = config_lib.load(runs[1])
    config.task.name, config.model.method = "focal", "none"
    config_lib.save(config, tmp_path / "gs-0")
    compare.check_comparable(runs)
    data = report_data.load(tmp_path, "test", "none task.name=classification")
    assert set(data.variants) == {"none task.name=classification", "none task.name=focal"}
    config.task.name = "shared_errors"
    config_lib.save(config, tmp_path / "gs-0")
    compare.check_comparable(runs)  # What they measure is compared where it is known.
    with pytest.raises(UserError, match="of different tasks, shared_errors and classification"):
        report_data.load(tmp_path, "test")


class HalvedF1(Focal):
    """It measures the same of every query, and something else of all of them."""

    name = "halved_f1"

    def corpus_metrics(self, predictions, queries):
        whole = super().corpus_metrics(predictions, queries)

        def halved(sums):
            return {name: value / 2 for name, value in whole.measure(sums).items()}

        return dataclasses.replace(whole, measure=halved)


def test_what_is_measured_of_all_queries_must_be_the_same_too(directory):
    base, other = (evaluated(directory, "classification", "gs", seed) for seed in (0, 1))
    assert compare.paired(base, other)["mean"] != 0
    task = HalvedF1(other.task.model, other.task.schema)
    with pytest.raises(UserError, match="and halved_f1 do not measure the same as macro_f1"):
        compare.paired(base, dataclasses.replace(other, task=task))
    # Predictions that are not finite are those of a broken run, and not of another measure.
    broken = {MODEL: {**other.predictions[MODEL]}}
    broken[MODEL]["log_probability"] = np.full(len(other.queries), np.nan)
    focal = Focal(other.task.model, other.task.schema)
    compare.paired(base, dataclasses.replace(other, task=focal, predictions=broken))
