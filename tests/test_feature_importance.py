"""Feature importance is measured on trained runs."""

import dataclasses
import errno
import json
import re
import types

import numpy as np
import pytest

from cbert import parallel
from cbert.data import prepare
from cbert.data.columns import Split
from cbert.data.prepared import load_schema
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.evaluation import compare, evaluate, evaluation_files, feature_importance, metrics
from cbert.evaluation.restore import restore
from cbert.schema import Categorical
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_queries import query_one
from cbert.tasks.metric import CROSS_ENTROPY, Metric
from cbert.training import checkpoint, loop
from cbert.training.evaluations import MODEL
from tests.conftest import run, small


def test_values_are_permuted_between_groups():
    schema = types.SimpleNamespace(features=(1,))
    groups = ["a"] * 4 + ["b"] * 3 + ["c"]
    permutation = feature_importance.permutation_between_groups(groups, schema)
    assert sorted(permutation) == list(range(8))
    assert all(groups[there] != groups[here] for here, there in enumerate(permutation))
    assert (permutation == feature_importance.permutation_between_groups(groups, schema)).all()
    with pytest.raises(UserError, match="'a' holds 4 of the 7 examples"):
        feature_importance.permutation_between_groups(groups[:7], schema)
    with pytest.raises(UserError, match="no context features"):
        feature_importance.permutation_between_groups(
            groups, types.SimpleNamespace(features=())
        )


MEALS = {"noon": "abcdef", "night": "uvwxyz"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Sets of three letters that depend on the time; the age says nothing."""
    directory, random = tmp_path_factory.mktemp("letters"), np.random.default_rng(0)
    validate, examples = Validator(), []
    for row in range(400):
        time = random.choice(list(MEALS))
        context = {"time": str(time), "age": int(random.integers(20, 80))}
        items = [str(item) for item in random.choice(list(MEALS[time]), 3, replace=False)]
        record = {"group": f"person {row // 2}", "items": items, "context": context}
        examples.append(validate(record, row + 1))
    prepare.prepare(examples, directory, "letters", prepare.PrepareOptions())
    return str(directory)


def test_importance_is_a_mean_by_weight():
    """The first of two queries gets one nat worse, the other one better; it weighs three."""
    day = Categorical("day", 4, ("mon", "tue"))
    context = {"day": np.array([[0], [1]], np.int32)}
    names = ["x", "y"]
    split = Split(names, names, ["{}"] * 2, np.zeros((2, 1), np.int32), context, None)
    weighed = types.SimpleNamespace(rows=np.arange(2), weights=np.array([3.0, 1.0]))
    task = types.SimpleNamespace(
        metrics=(CROSS_ENTROPY,),
        queries=lambda split, masking: weighed,
        metric_values=lambda nats, queries: {"cross_entropy": nats},
    )
    restored = types.SimpleNamespace(
        task=task,
        predict=lambda data, split, queries: np.asarray(data["context"]["day"])[:, 0],
    )
    schema, exchanged = types.SimpleNamespace(features=(day,)), np.array([1, 0])
    measured = feature_importance.measure(
        restored, split.columns, split, schema, exchanged, False
    )
    assert measured["day"]["permuted"]["mean"] == (3 * 1 - 1) / 4
    assert measured["day"]["dropped"] is None


def trained_and_evaluated(prepared, directory, method):
    """A tiny run with context dropout, evaluated with feature importance."""
    config = small(method, data__dir=prepared, data__name="letters", model__layers=1)
    config.train.update({"context_dropout": 0.2, "steps": 60, "eval_every": 30})
    config.optimizer.learning_rate = 1e-2
    loop.train(config, directory / method)
    options = evaluate.EvaluationOptions(feature_importance=True)
    evaluation = evaluate.evaluate(directory / method, options)
    evaluation_files.write(evaluation, evaluation_files.summary(evaluation), directory / method)
    return config, evaluation


@pytest.fixture(scope="module")
def trained(prepared, tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained")
    return directory, *trained_and_evaluated(prepared, directory, "gsu")


def test_importance_is_that_of_contexts_perturbed_by_hand(trained):
    directory, config, evaluation = trained
    split, schema = evaluation.split, evaluation.schema
    restored = restore(directory / "gsu", config, schema, checkpoint.BEST)
    permutation = feature_importance.permutation_between_groups(split.groups, schema)
    queries = query_one(split)

    def loss(**context):
        columns = {**split.columns, "context": {**split.context, **context}}
        return -restored.predict(parallel.replicate(columns), split, queries)[
            "log_probability"
        ].astype(float)

    for feature in schema.features:
        values = [json.loads(context)[feature.name] for context in split.contexts]
        perturbed = {
            "permuted": schema.encode_feature(
                feature.name, [values[row] for row in permutation]
            ),
            "dropped": feature.missing(len(values)),
        }
        for perturbation, column in perturbed.items():
            rise = loss(**{feature.name: column}) - loss()
            groups = metrics.group_codes(split.groups)[queries.rows]
            expected = metrics.estimate(rise, groups).summary()
            measured = evaluation.feature_importance[feature.name][perturbation]
            assert measured == pytest.approx(expected, abs=1e-6)
    time, age = (evaluation.feature_importance[name]["permuted"] for name in ("time", "age"))
    assert time["mean"] > abs(age["mean"])


def test_a_run_is_evaluated_once_its_answers_are_written(trained, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(evaluation_files.pyarrow.parquet, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        evaluation_files.write(trained[2], {}, tmp_path)
    assert list((tmp_path / "eval").iterdir()) == []


def test_measured_importance_stays_until_the_checkpoint_is_another(trained, tmp_path):
    """An evaluation with other settings than the run's own has its own files."""
    directory, _, evaluated = trained
    without = dataclasses.replace(evaluated, feature_importance=None)
    kept = {}
    later = dataclasses.replace(without, step=evaluated.step + 1)
    for evaluation in (evaluated, without, later):
        evaluation_files.write(evaluation, evaluation_files.summary(evaluation), tmp_path)
        kept[evaluation.step] = json.loads((tmp_path / "eval" / "test.json").read_text())
    assert kept[evaluated.step]["feature_importance"] == evaluated.feature_importance
    assert "feature_importance" not in kept[evaluated.step + 1]
    # Another processor rounds differently; other data under the same name differ by more.
    for difference, stays in ((1e-6, True), (0.5, False)):
        evaluation_files.write(evaluated, evaluation_files.summary(evaluated), tmp_path)
        nats = {**without.predictions[MODEL]}
        nats["log_probability"] = nats["log_probability"] - difference
        changed = dataclasses.replace(without, predictions={**without.predictions, MODEL: nats})
        evaluation_files.write(changed, evaluation_files.summary(changed), tmp_path)
        written = json.loads((tmp_path / "eval" / "test.json").read_text())
        assert ("feature_importance" in written) == stays
    options = evaluate.EvaluationOptions(masking="one", checkpoint="last")
    assert evaluate.evaluate(directory / "gsu", options).name == "test-one-last"


@pytest.mark.soak
def test_a_trained_sweep_is_reported(prepared, trained):
    directory, _, evaluation = trained
    trained_and_evaluated(prepared, directory, "none")
    done = run("report", f"--workdir={directory}")
    assert "none → gsu" in done.stdout
    assert "missing" not in done.stdout
    report = (directory / "report" / "report.md").read_text()
    dropped = evaluation.feature_importance["time"]["dropped"]
    assert f"{dropped['mean']:+.4f} ± {dropped['standard_error']:.4f} |" in report
    assert "One feature is dropped" in report
    assert (
        compare.format_feature_importance(
            evaluation.feature_importance, evaluation.task.metrics[0]
        )
        .splitlines()[1]
        .startswith("time ")
    )
    none = json.loads((directory / "none" / "eval" / "test.json").read_text())[
        "feature_importance"
    ]
    assert none["time"]["permuted"] == {"mean": 0.0, "standard_error": 0.0}


class ByLikelihood(MaskedItem):
    """The task with a deciding metric that is better when it is larger."""

    metrics = (Metric("log_likelihood", "max", "log-likelihood"),)

    def metric_values(self, predictions, queries):
        return {"log_likelihood": -super().metric_values(predictions, queries)["cross_entropy"]}


def test_a_metric_that_falls_without_a_feature_gets_worse(prepared, tmp_path):
    config = small("gs", data__dir=prepared, data__name="letters", model__layers=1)
    loop.train(config, tmp_path / "gs")
    evaluation = evaluate.evaluate(tmp_path / "gs", evaluate.EvaluationOptions("validation"))
    split, schema = evaluation.split, load_schema(prepared, "letters")
    permutation = feature_importance.permutation_between_groups(split.groups, schema)
    restored = restore(tmp_path / "gs", config, schema, "best")
    other = ByLikelihood(**vars(restored.task))
    given = parallel.replicate(split.columns), split, schema, permutation, False
    importance = feature_importance.measure(restored, *given)
    assert importance["time"]["permuted"]["mean"] != 0
    reversed_metric = dataclasses.replace(restored, task=other)
    assert feature_importance.measure(reversed_metric, *given) == importance
    table = compare.format_feature_importance(importance, other.metrics[0])
    assert table.startswith("fall in log-likelihood")
    assert re.search(r"^age .* not measured$", table, re.M)
    assert "the run's train.context_dropout is 0" in table.splitlines()[-1]


def test_nothing_rises_without_a_context(schema, data_dir, tmp_path):
    """What is not computed for the method none is what would be computed."""
    config = small("none", data__dir=data_dir)
    loop.train(config, tmp_path / "none")
    evaluation = evaluate.evaluate(tmp_path / "none", evaluate.EvaluationOptions("validation"))
    split = evaluation.split
    permutation = feature_importance.permutation_between_groups(split.groups, schema)
    restored = restore(tmp_path / "none", config, schema, "best")
    given = restored, parallel.replicate(split.columns), split, schema, permutation, True
    assert feature_importance.measure(*given, False) == feature_importance.measure(*given, True)
