"""What an evaluation says beside its numbers: better baselines, unknown values, groups."""

import json
import pathlib
import re
import shutil
import types

import numpy as np
import pytest

import cbert
from cbert.data import prepared
from cbert.data.records import SPLITS
from cbert.errors import UserError
from cbert.evaluation import baselines, diagnosis, evaluate, evaluation_files
from cbert.evaluation.measured import Measured
from cbert.schema import PAD_ITEM
from cbert.tasks.classification import Classification
from cbert.tasks.metric import without_sums
from cbert.tasks.regression import Regression
from cbert.training import workdir
from tests.conftest import run


def test_an_evaluation_names_the_baselines_that_are_better(trained):
    evaluation = evaluate.evaluate(trained, evaluate.EvaluationOptions())
    summary = evaluation_files.summary(evaluation)
    better = {
        name
        for name, result in summary["results"].items()
        if name not in ("model", *baselines.OPTIMA)
        and result["cross_entropy"]["mean"]
        < summary["results"]["model"]["cross_entropy"]["mean"]
    }
    lines = diagnosis.better_baselines(evaluation, summary)
    named = {line.split(" is better")[0] for line in lines if "in cross-entropy (" in line}
    assert named == better
    summary["results"] = {**summary["results"], "popularity": summary["results"]["model"]}
    lines = diagnosis.better_baselines(evaluation, summary)
    assert not any("popularity is better than the model in cross" in line for line in lines)


def test_results_that_cannot_be_written_are_printed(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("eval"))
    (copy / "eval").write_text("Even root can write no file into a file.")
    done = run("evaluate", f"--workdir={copy}", check=2)
    assert re.search(r"^gsu +\d\.\d+ ± ", done.stdout, re.M)
    assert done.stderr == (
        "error: the results above could not be written to the directory eval of "
        f"{copy} (File exists); give it room and permission, then run the same command again\n"
    )


def test_results_as_json_are_those_of_the_file_and_nothing_else(trained, tmp_path):
    copies = [str(shutil.copytree(trained, tmp_path / name)) for name in ("one", "other")]
    done = run("evaluate", f"--workdir={','.join(copies)}", "--masking=one", "--json")
    printed = json.loads(done.stdout)
    assert list(printed) == copies
    # The two are copies of one run, and so differ by nothing.
    no_difference = {"mean": 0.0, "standard_error": 0.0, "low": 0.0, "high": 0.0}
    assert printed[copies[1]].pop("difference") == {"from": copies[0], **no_difference}
    for path, results in printed.items():
        file = pathlib.Path(path) / "eval" / "test-one.json"
        assert results == json.loads(file.read_text())


def test_what_an_evaluation_does_not_know_is_said(trained, tmp_path, capsys):
    copy = shutil.copytree(trained, tmp_path / "run")
    evaluate.evaluate(copy, evaluate.EvaluationOptions(split="validation"))
    assert capsys.readouterr().err.count("warning") == 0
    (copy / "finished.json").unlink()
    config = json.loads((copy / "config.json").read_text())
    records = [
        {"items": ["a", f"b{n % 5}"], "context": {"occasion": "ab"[n % 2]}} for n in range(90)
    ]
    cbert.prepare(records, "elsewhere", config["data"]["dir"], cbert.PrepareOptions("sequence"))
    with pytest.raises(UserError, match="no item of the split is in"):
        cbert.evaluate(copy, split="test", name="elsewhere")
    error = capsys.readouterr().err
    assert "'elsewhere' has sequences, and the model learned from sets" in error
    first, second = workdir.read(copy)[1].items[:2]
    own = [{**record, "items": [first, second]} for record in records]
    cbert.prepare(own, "own", config["data"]["dir"])
    cbert.evaluate(copy, split="test", name="own")
    error = capsys.readouterr().err
    assert "the test split of 'own' has no value of the context features age, " in error
    assert "every example; it has: occasion" in error
    assert "'own' has no value that the model knows of the context features occasion" in error
    assert "'own' is not what the model learned from, 'small'; the baselines are of" in error
    assert "prepared anew" not in error
    cbert.prepare(own, config["data"]["name"], tmp_path / "anew")
    cbert.evaluate(copy, split="test", data_dir=tmp_path / "anew")
    error = capsys.readouterr().err
    assert f"'{config['data']['name']}' was prepared anew since the model learned from" in error
    evaluated = evaluate.evaluate(copy, evaluate.EvaluationOptions(split="validation"))
    said = f"the run is not finished; its checkpoint is of step {evaluated.step}, and"
    assert said in capsys.readouterr().err


def test_runs_of_other_items_are_refused_before_any_is_evaluated(trained, tmp_path):
    """The second run lacks checkpoints, so that its evaluation would end with another error."""
    (copy := tmp_path / "run").mkdir()
    shutil.copy(trained / "config.json", copy)
    described = json.loads((trained / "schema.json").read_text())
    described["items"][-1] = "new"
    (copy / "schema.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match="the runs have different vocabularies, so that their"):
        cbert.compare([trained, copy])


def test_longer_examples_than_a_run_takes_are_refused_with_the_flags_of_prepare(
    trained, tmp_path
):
    schema = workdir.read(trained)[1]
    items = list(schema.items[: schema.max_items + 1])
    longest = [{"items": items, "split": split} for split in SPLITS] * 2
    cbert.prepare(longest, "longest", tmp_path)
    where = ("--name=longest", f"--data_dir={tmp_path}")
    assert run("evaluate", f"--workdir={trained}", *where, check=2).stderr.endswith(
        f"an example has {schema.max_items + 1} items where the schema's max_items is "
        f"{schema.max_items}; prepare with --max_items={schema.max_items} and with "
        "--longer=subsample\n"
    )


def test_new_data_without_training_have_the_baselines_of_what_the_run_learned_from(
    trained, tmp_path, capsys
):
    """Here the new data are the old test split, so that the baselines are the same."""
    config, schema = workdir.read(trained)
    shutil.copytree(f"{config.data.dir}/small", tmp_path / "small")
    old = prepared.load(config.data.dir, "small", "test", schema)
    names = {code: item for item, code in schema.codes.items()}
    items = [[names[code] for code in row if code != PAD_ITEM] for row in old.items]
    records = [
        {"items": row, "context": json.loads(context), "group": group}
        for row, context, group in zip(items, old.contexts, old.groups, strict=True)
    ]
    options = cbert.PrepareOptions(split_weights=(0, 0, 100))
    cbert.prepare(records, "new", tmp_path, options, schema=trained)
    capsys.readouterr()
    means = []
    for name in ("small", "new"):
        asked = evaluate.EvaluationOptions(name=name, data_dir=str(tmp_path))
        found = evaluation_files.summary(evaluate.evaluate(trained, asked))["results"]
        means.append({key: one["cross_entropy"]["mean"] for key, one in found.items()})
    known = {name: mean for name, mean in means[0].items() if name not in baselines.OPTIMA}
    assert "popularity given context" in known
    assert means[1] == pytest.approx(known)
    said = "'new' is not what the model learned from, 'small';"
    used = "the baselines are of the training split of 'small'"
    assert f"{said} {used}\n" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "small")
    evaluation = evaluate.evaluate(trained, asked)
    assert {*evaluation.predictions} == {"model", "popularity"}
    assert f"{said} without a training split, baselines that" in capsys.readouterr().err


def of_sequences(trained, path):
    """A copy of a run of sets, in which the order of items counts."""
    copy = shutil.copytree(trained, path)
    written = json.loads((copy / "schema.json").read_text())
    (copy / "schema.json").write_text(json.dumps({**written, "kind": "sequence"}))
    return copy


def test_the_last_item_and_the_last_checkpoint_have_files_of_their_own(trained, tmp_path):
    copy = of_sequences(trained, tmp_path / "run")
    shutil.rmtree(copy / "eval", ignore_errors=True)
    items = list(workdir.read(copy)[1].items[:3])
    records = [{"group": str(n), "split": "test", "items": items[:2]} for n in range(9)]
    testing = cbert.PrepareOptions("sequence", split_weights=(0, 0, 100))
    cbert.prepare(records, "new", tmp_path, testing, schema=copy)
    for masking, checkpoint in (("last", "best"), ("", "last"), ("last", "last")):
        cbert.evaluate(copy, "test", checkpoint, name="new", data_dir=tmp_path, masking=masking)
    names = {f"test-{one}-on-new.json" for one in ("last-item", "last", "last-item-last")}
    assert {path.name for path in (copy / "eval").glob("*.json")} == names


def test_histories_in_several_splits_are_pointed_out(trained, tmp_path, capsys):
    """Where last items are asked, or each group is in one split, nothing is said."""
    copy = of_sequences(trained, tmp_path / "run")
    first, second, third = workdir.read(copy)[1].items[:3]
    records = [
        {"group": f"g{n}", "split": split, "items": [first, second, third][:length]}
        for n in range(30)
        for length, split in ((2, "train"), (3, ("validation", "test")[n % 2]))
    ]
    apart = [{**record, "group": str(n)} for n, record in enumerate(records)]
    for name, given in (("histories", records), ("apart", apart)):
        cbert.prepare(given, name, tmp_path, cbert.PrepareOptions("sequence"))
    for name, masking in (("histories", "each"), ("histories", "last"), ("apart", "each")):
        with pytest.raises(UserError, match="checkpoint is"):
            cbert.evaluate(copy, name=name, data_dir=tmp_path, masking=masking, checkpoint=99)
        said = (
            "warning: 30 groups of 'histories' lie in several splits; where their sequences "
            "overlap, training has seen items that masking=each asks about: give masking=last\n"
        )
        lies = (name, masking) == ("histories", "each")
        assert capsys.readouterr().err.count(said) == lies


def test_a_constant_is_no_better_calibrated_or_correlated():
    """The mean has a correlation of 0, and a share a calibration error of 0, by definition."""
    for task, name in ((Regression, "pearson"), (Classification, "calibration_error")):
        metric = next(one for one in task.metrics if one.name == name)
        first, worse, better = task.metrics[0], -0.5, 0.0
        if metric.best == "min":
            worse, better = 0.5, 0.0
        results = {
            "model": {metric.name: {"mean": worse}, first.name: {"mean": 1.0}},
            "mean": {metric.name: {"mean": better}, first.name: {"mean": 1.0}},
        }
        evaluation = types.SimpleNamespace(
            task=types.SimpleNamespace(metrics=(first, metric)),
            measured=dict.fromkeys(results, Measured({}, without_sums(0), np.zeros(0))),
        )
        assert diagnosis.better_baselines(evaluation, {"results": results}) == []


def test_a_group_with_most_of_the_queries_is_named(trained, tmp_path, capsys):
    """1 / ((40 / 60)^2 + 20 (1 / 60)^2) = 180 / 81 groups; importance needs another group."""
    copy = shutil.copytree(trained, tmp_path / "run")
    items = list(workdir.read(copy)[1].items[:2])
    records = [
        {"items": items, "group": "big" if 30 <= n < 70 else f"g{n}", "context": {"age": n}}
        for n in range(90)
    ]
    for number, record in enumerate(records):
        record["split"] = "validation" if number < 5 else "train" if number < 30 else "test"
    cbert.prepare(records, "unequal", tmp_path / "data")
    options = {"name": "unequal", "data_dir": tmp_path / "data"}
    evaluation = cbert.evaluate(copy, **options, feature_importance=True)
    error = capsys.readouterr().err
    assert "'big' has 67% of the queries, so that 21 groups say as much as 2.2 equal" in error
    assert "the group 'big' holds 40 of the 60 examples, so its values cannot be" in error
    # It was asked for, so that a sweep does not ask for ever; see `states.is_finished`.
    assert evaluation.summary["feature_importance"] == {}
    assert evaluation.summary["results"]["model"]["cross_entropy"]["mean"] > 0


def test_what_a_single_group_leaves_unknown_is_nan_in_a_data_frame(trained, tmp_path):
    items = workdir.read(trained)[1].items[:2]
    records = [{"group": "one", "split": "test", "items": list(items)}]
    cbert.prepare(records, "one", tmp_path, schema=trained)
    where = {"name": "one", "data_dir": str(tmp_path)}
    metrics = cbert.evaluate(trained, write=False, **where).metrics
    assert metrics["mrr_standard_error"].isna().all()
    copy = shutil.copytree(trained, tmp_path / "copy")
    compared = cbert.compare([trained, copy], **where)
    assert compared.loc[str(copy), "difference"] == 0
    assert compared.loc[str(copy), ["standard_error", "low", "high"]].isna().all()
    assert {*metrics.dtypes, *compared.dtypes} == {np.dtype(float)}
