"""Tasks of somebody's own: what they have of those that they extend, and what is refused."""

import csv

import numpy as np
import pytest

import cbert
from cbert import tasks
from cbert.benchmark import workload
from cbert.errors import UserError
from cbert.evaluation import evaluate
from cbert.report import report_data, writers
from cbert.tasks import ranking
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.metric import CorpusMetrics, Metric
from cbert.training import config_file, loop
from cbert.training import run as run_lib
from tests.conftest import ROOT, run, small

FILE = ROOT / "tests" / "own_tasks.py"
KNOWN = {"CBERT_METHODS": str(FILE)}


@pytest.fixture(autouse=True, scope="module")
def registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks.TASKS, "data", {**tasks.TASKS})
        config_file.load_module(str(FILE))
        yield


@pytest.fixture(scope="module")
def trained(registered, data_dir, tmp_path_factory):
    """A directory with a run of each of the tasks, and one of masked items."""
    folder = tmp_path_factory.mktemp("tasks")
    for name in ("masked_item", "hits", "warm", "count_items", "halved"):
        config = small("none", data__dir=data_dir, task__name=name, train__steps=2)
        loop.train(config, folder / name / "run")
    return folder


def test_a_task_with_one_more_metric_has_the_baselines(trained, capsys):
    evaluation = cbert.evaluate(trained / "hits" / "run")
    results = evaluation.summary["results"]
    popular = evaluation.queries["popularity_rank"] <= 10
    assert results["popularity"]["hit@10"]["mean"] == pytest.approx(np.mean(popular))
    assert {"co-occurrence", "popularity given context", "Bayes-optimal"} < set(results)
    assert 0 < results["popularity"]["hit@10"]["mean"] < 1
    # Its ranks are not known, which this metric asks for.
    assert "Bayes-optimal without context" not in results
    assert (
        "the baseline Bayes-optimal without context is left out, because the metrics of the "
        "task hits need more than it predicts (KeyError: 'rank')"
    ) in capsys.readouterr().err


def test_advice_names_the_options_of_the_task_itself(data_dir, schema, capsys):
    options = {"masking": "one", "mask_rate": 0.3, "sampled_items": 2_000_000_000}
    named = {f"task__hits__{name}": value for name, value in options.items()}
    config = small("none", data__dir=data_dir, task__name="hits", **named)
    with pytest.raises(UserError, match=r", task\.hits\.sampled_items \(2000000000\), or"):
        run_lib.set_up(config, schema)
    said = capsys.readouterr().err
    assert "task.hits.mask_rate is 0.3 and has no effect, because one item an example" in said
    assert "task.hits.masking=rate masks by it" in said


def test_a_task_that_predicts_otherwise_says_why_it_has_no_baselines(trained, capsys):
    evaluation = cbert.evaluate(trained / "warm" / "run")
    assert set(evaluation.summary["results"]) == {"model"}
    why = "the task warm has no baselines, because its predict is not that of masked_item"
    assert why in capsys.readouterr().err
    completion = cbert.load(trained / "warm" / "run", batch_sizes=(1,)).complete([None], k=1)
    assert 0 < completion.predictions[0][0].probability < 1


class First(MaskedItem):
    """Masked items of which no more are asked than `sampled_items` says."""

    def queries(self, split, masking):
        return super().queries(split, masking).first(self.options.sampled_items)


def test_runs_of_one_task_with_other_options_are_asked_other_queries(data_dir, schema):
    def asked(most, model=None):
        config = small("none", task__masked_item__sampled_items=most)
        task = First(model, schema, tasks.task_options(config))
        settings = {"data": "small", "split": "test", "masking": "each"}
        asks = evaluate._asks(task, config)
        return evaluate._query(task, asks, data_dir, settings, schema, "small")[1]

    assert [len(asked(most)) for most in (3, 5)] == [3, 5]
    assert asked(5, "another model") is asked(5)


def test_a_task_that_extends_none_is_evaluated_and_refused_elsewhere(trained, tmp_path):
    summary = cbert.evaluate(trained / "count_items" / "run", write=False).summary
    assert summary["results"]["model"]["squared_error"]["mean"] > 0
    workdir = f"--workdir={trained}/count_items/run"
    for arguments in (
        ("complete", workdir, "--items=[]", "--slots=1"),
        ("export", workdir, f"--output={tmp_path}/exported"),
    ):
        done = run(*arguments, check=2, **KNOWN)
        assert done.stderr == (
            "error: the task count_items extends none of cbert's, so that there is no "
            "predictor, page or export for it; evaluate its runs\n"
        )
    with pytest.raises(UserError, match="the task count_items extends none"):
        cbert.load(trained / "count_items" / "run")


def test_the_benchmark_has_sets_for_a_task_that_extends_masked_items():
    config = small("none", task__name="hits")
    schema = workload.make_schema(config, workload.Sizes(items=7, length=5))
    assert (schema.kind, schema.max_items, len(schema.items)) == ("set", 5, 7)


def test_a_metric_that_is_added_is_in_the_files_of_a_report(trained):
    evaluation = cbert.evaluate(trained / "hits" / "run")
    directory = trained / "hits"
    writers.write(report_data.load(directory, "test"))
    rows = csv.DictReader((directory / "report" / "results.csv").open(encoding="utf-8"))
    means = {(row["name"], row["metric"]): float(row["mean"]) for row in rows}
    expected = float(np.mean(evaluation.queries["rank"] <= 10))
    assert means["none", "hit@10"] == pytest.approx(expected)
    assert means["none", "mrr"] == pytest.approx(float(np.mean(1 / evaluation.queries["rank"])))
    assert "hit@10 %" in (directory / "report" / "report.md").read_text()


def test_a_run_with_a_metric_more_is_compared_with_those_of_the_base(trained):
    base, other = (trained / name / "run" for name in ("masked_item", "hits"))
    for runs in ([base, other], [other, base]):
        table = cbert.compare(runs)
        first, second = table["cross_entropy"]
        assert table["difference"].iloc[1] == pytest.approx(second - first, abs=1e-9)
        assert table["hit@10"].isna().tolist() == [run == base for run in runs]
    # Its loss is the same, so that these are two names of one model.
    assert first == second
    done = run("evaluate", f"--workdir={base},{other}", "--split=validation", **KNOWN)
    assert "hit@10 %" in done.stdout
    with pytest.raises(
        UserError, match="masked_item and halved do not measure the same as mrr"
    ):
        cbert.compare([base, trained / "halved" / "run"])
    with pytest.raises(UserError, match="of different tasks, masked_item and count_items"):
        cbert.compare([base, trained / "count_items" / "run"])


class Begun(MaskedItem):
    """Masked items whose dense layer before the output begins with a bias."""

    name = "begun"

    def first_parameters(self, train):
        bias = np.full(self.model.encoder.config.dimension, 2, np.float32)
        return {**super().first_parameters(train), "transform": {"bias": bias}}


class Decided(MaskedItem):
    """Masked items that a metric decides which is no mean over queries."""

    name = "decided"
    metrics = (Metric("median", "min", "median"), *MaskedItem.metrics)

    def corpus_metrics(self, predictions, queries):
        median = float(np.median(predictions["rank"]))
        return CorpusMetrics(np.zeros((len(queries), 0)), lambda sums: {"median": median})


class Lacking(MaskedItem):
    """Masked items with a metric that is nowhere."""

    name = "lacking"
    metrics = (*MaskedItem.metrics, Metric("hit@3", "max", "hit@3"))


def begun(data_dir, task, **overrides):
    tasks.TASKS[task.name] = task
    return cbert.build(small("none", data__dir=data_dir, task__name=task.name, **overrides))


def test_a_task_begins_with_its_parameters_and_with_popularity(data_dir, schema):
    params = begun(data_dir, Begun, model__output_bias="popularity").state.params
    assert (params["transform"]["bias"] == 2).all()
    expected = ranking.log_fractions(schema.counts)
    np.testing.assert_array_equal(params["embedding"]["bias"], expected)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Decided, "the first metric of the task decided is median, which is no mean over que"),
        (Lacking, r"the task lacking has the metric hit@3, and metric_values does not give it"),
    ],
)
def test_a_metric_that_cannot_decide_or_is_nowhere_is_refused(data_dir, task, message):
    experiment = begun(data_dir, task)
    with pytest.raises(UserError, match=message):
        experiment.validate(experiment.state.params)
