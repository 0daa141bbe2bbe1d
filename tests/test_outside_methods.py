"""A method is one file and one line in the registry: one from outside the package."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import cbert
from cbert import tasks
from cbert.errors import UserError
from cbert.model import conditioning, parameter_tree
from cbert.model.conditioning.method import ExtraKeys
from cbert.model.conditioning.prefix import Prefix
from cbert.model.parameter_tree import table_1_count
from cbert.sweep import points
from cbert.tasks import likeness
from cbert.tasks.base import Examples
from cbert.tasks.classification import Classification
from cbert.tasks.masked_item import MaskedItem
from cbert.training import config as config_lib
from cbert.training import config_file, loop
from tests import test_benchmark
from tests.conftest import ROOT, refused, run, small
from tests.models import SMALL, batch, build, drawn, encode, made
from tests.outside_methods import METHODS
from tests.text_data import load, prepare_texts, small_text

# A config file that brings its own method along.
CONFIG_FILE = """
from cbert.model import conditioning
from configs import stylist
from tests.outside_methods import METHODS

conditioning.METHODS.update(METHODS)
get_config = stylist.get_config
"""


MISSPELT = """

class Misspelt(conditioning.Method):
    def begn(self, x, mask, context):
        return 2 * x, mask, None

conditioning.METHODS["misspelt"] = Misspelt
"""
NAME = "scaled_input"
PLAIN = 546432  # The parameters of the method none: d = 128, four layers, C = 736.


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for name, method in METHODS.items():
        monkeypatch.setitem(conditioning.METHODS, name, method)


class PrefixOfKeys(Prefix):
    """The features as keys and values of every block, which no block changes."""

    def begin(self, x, mask, context):
        return x, mask, self.tokens(context)

    def keys_values(self, layer, state):
        tokens, shown = state
        return ExtraKeys(x=tokens, mask=shown)


def test_extra_keys_are_read_as_more_positions_are(schema, train_split, monkeypatch):
    """In a single block positions that a prefix adds are keys and values alone."""
    monkeypatch.setitem(conditioning.METHODS, "prefix_of_keys", PrefixOfKeys)
    codes, context = batch(train_split)
    one_block = dataclasses.replace(SMALL, layers=1)
    prefix, params = made(schema, "prefix", one_block)
    expected = encode(prefix, params, codes, context)
    keys = build(schema, "prefix_of_keys", one_block)
    np.testing.assert_allclose(encode(keys, params, codes, context), expected, atol=1e-6)
    without = encode(build(schema, "none", one_block), params, codes, context)
    assert np.abs(without - expected).max() > 0.1


def test_it_trains_from_a_config_and_reads_the_context(data_dir, tmp_path):
    config = small(NAME, data__dir=data_dir, train__steps=120, model__layers=1)
    config.optimizer.learning_rate = 1e-2
    config.train.update({"log_every": 5, "eval_every": 120, "checkpoint_every": 120})
    loop.train(config, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    losses = [row["loss"] for row in rows if row["split"] == "train"]
    assert losses[-1] < losses[0] - 0.3
    predictor = cbert.load(tmp_path, batch_sizes=(1,))
    assert predictor.method == NAME
    one, other = (
        predictor.complete([None], {"occasion": occasion}, k=80)
        for occasion in ("wedding", "sport")
    )
    first, second = (
        {prediction.item: prediction.probability for prediction in completion.predictions[0]}
        for completion in (one, other)
    )
    assert sum(first.values()) == pytest.approx(1, abs=1e-5)
    assert max(abs(np.log(first[item] / second[item])) for item in first) > 0.01


def test_it_begins_as_the_model_without_it(schema, train_split):
    codes, context = batch(train_split)
    model = build(schema, NAME)
    params = parameter_tree.initialize(model, jax.random.key(0))
    plain = {name: value for name, value in params.items() if name != "conditioning"}
    expected = encode(build(schema, "none"), plain, codes, context)
    np.testing.assert_array_equal(encode(model, params, codes, context), expected)
    # A scale of 3 equals embeddings that are three times as large.
    params["conditioning"]["scale"]["bias"] += 2.0
    larger = jax.tree.map(lambda x: 3 * x, plain["embedding"])
    expected = encode(build(schema, "none"), {**plain, "embedding": larger}, codes, context)
    np.testing.assert_allclose(encode(model, params, codes, context), expected, atol=1e-5)


def test_its_section_is_checked_and_overridden(data_dir, schema):
    config = small(NAME, data__dir=data_dir, model__scaled_input__bias=False)
    config_lib.check(config)
    assert config_lib.build_model(config, schema).encoder.options.bias is False
    assert "model.scaled_input.bias" in config_lib.fields(config)
    with pytest.raises(KeyError, match="Did you mean"):
        small(NAME, model__scaled_input__bais=False)
    del config.unlock().model.scaled_input
    with pytest.raises(UserError, match=r"model\.scaled_input\.bias is missing"):
        config_lib.check(config)


def test_a_sweep_knows_its_controls(data_dir, schema):
    config = small("gsu", data__dir=data_dir)
    (constant,) = points.expand(config, [], [f"{NAME}_constant"], 1, [], schema)
    assert constant.overrides["model.constant_context"]
    (wide,) = points.expand(config, [], [f"{NAME}_wide"], 1, [], schema)
    widened = wide.apply(config)
    size, gsu = (
        table_1_count(config_lib.build_model(one, schema)) for one in (widened, config)
    )
    unit = 2 * (2 * 16 + 1)  # One more hidden unit in each of two layers adds so many.
    assert gsu <= size < gsu + unit


def test_a_method_of_any_name_keeps_the_configs_width(monkeypatch, data_dir, schema):
    monkeypatch.setitem(conditioning.METHODS, f"{NAME}_wide", METHODS[NAME])
    config = small("gsu", data__dir=data_dir)
    (point,) = points.expand(config, [], [f"{NAME}_wide"], 1, [], schema)
    assert point.overrides == {"model.method": f"{NAME}_wide", "seed": config.seed}


def test_a_sweep_and_its_report_know_it_by_its_file(data_dir, tmp_path):
    block = (ROOT / "README.md").read_text().split("This is a whole one")[1]
    file = tmp_path / "mine.py"
    file.write_text(block.split("```python\n")[1].split("```")[0])
    file.write_text(file.read_text() + "\nfrom configs.base import get_config\n")
    workdir, registered = tmp_path / "runs", {"CBERT_METHODS": str(file)}
    config = [
        *(f"--config={file}:{NAME}", f"--config.data.dir={data_dir}"),
        *("--config.data.name=small", "--config.model.dimension=16", "--config.model.heads=2"),
        *("--config.model.layers=1", "--config.model.feed_forward=16"),
        *("--config.train.batch_size=32", "--config.train.steps=4"),
        *("--config.train.eval_every=4", "--config.train.checkpoint_every=4"),
        *("--config.train.length_buckets=1", "--config.optimizer.warmup_steps=1"),
    ]
    # A config file that registers it is enough for the processes that a sweep starts.
    arguments = f"--workdir={workdir}", f"--methods={NAME}", "--nofeature_importance"
    done = run("sweep", *config, *arguments)
    (advised,) = [line for line in done.stdout.splitlines() if line.startswith("next: ")]
    assert advised.startswith(f"next: CBERT_METHODS={file} python -m experiments.report")
    run("report", f"--workdir={workdir}", **registered)
    assert f"\n{NAME},variant" in (workdir / "report" / "results.csv").read_text()
    done = run("evaluate", f"--workdir={workdir}", check=2, CBERT_METHODS="absent.py")
    assert done.stderr.startswith(f"error: CBERT_METHODS: {ROOT}/absent.py: no such file")
    line = refused("train", f"--config=configs/base.py:{NAME}", "--workdir=none")
    assert line.endswith("; name the file of one that is yours in CBERT_METHODS\n")


def test_files_are_separated_by_commas(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(CONFIG_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(config_file.METHODS_VARIABLE, "a.py:b.py")
    with pytest.raises(UserError, match=r"a\.py:b\.py: no such file; .* separated by commas"):
        config_file.load_methods()
    monkeypatch.setenv(config_file.METHODS_VARIABLE, "a.py,b.py")
    config_file.load_methods()


def test_a_config_file_with_a_method_joins_the_files_that_are_named(tmp_path, monkeypatch):
    monkeypatch.delitem(conditioning.METHODS, NAME)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own.py").write_text(CONFIG_FILE)
    monkeypatch.setenv(config_file.METHODS_VARIABLE, "configs/base.py")
    monkeypatch.chdir(tmp_path)  # The project's own files are found beside the package.
    for _ in range(2):
        assert config_file.read(f"~/own.py:{NAME}").model.method == NAME
        assert config_file.method_files() == [f"{ROOT}/configs/base.py", f"{tmp_path}/own.py"]


def test_its_operations_are_those_of_the_traced_model(monkeypatch):
    counted, traced = test_benchmark.operations(NAME, monkeypatch)
    assert counted == traced


def test_describe_counts_it_by_a_config_file_of_its_own(tmp_path):
    file = tmp_path / "outside.py"
    file.write_text(CONFIG_FILE)
    arguments = "describe", f"--config={file}:{NAME}", "--articles=30000"
    done = run(*arguments)
    assert int(done.stdout.split()[-1]) == PLAIN + (736 + 1) * 128
    line = refused("tune", f"--config={file}:{NAME}", f"--workdir={tmp_path}/tune")
    assert "is written for what comes with cbert only; use" in line
    done = run(*arguments, "--config.model.scaled_input.bias=false")
    assert int(done.stdout.split()[-1]) == PLAIN + 736 * 128
    assert "overrides no hook" not in done.stderr
    file.write_text(CONFIG_FILE + MISSPELT)
    done = run("describe", f"--config={file}:misspelt", "--articles=300")
    assert "the method misspelt overrides no hook of Method, so that it is" in done.stderr


def test_a_task_that_extends_another_is_used_as_that_one(tmp_path, monkeypatch):
    block = (ROOT / "docs" / "library.md").read_text().split("## A task of your own")[1]
    monkeypatch.setattr(tasks.TASKS, "data", {**tasks.TASKS})  # The block adds one.
    exec(block.split("```python\n")[1].split("```")[0], {"jax": jax})
    prepare_texts(tmp_path, "label")
    split, schema = load(tmp_path, "label")
    config = small_text("focal", tmp_path, train__steps=2, train__length_buckets=1)
    model = config_lib.build_model(config, schema)
    task, params = tasks.create(config, model, schema, split), drawn(model)
    columns = jax.tree.map(lambda column: column[:64], split.columns)
    keys = jax.random.split(jax.random.key(0))
    batch = jax.jit(task.batch)(keys, Examples(columns, {}, np.arange(64), 64))
    predicted = jax.jit(task.predict)(params, columns, {})
    log_p = np.asarray(predicted["log_probability"], np.float64)
    loss, _ = jax.jit(task.loss)(params, batch, {})
    assert loss == pytest.approx((-((1 - np.exp(log_p)) ** 2) * log_p).mean(), rel=1e-5)

    loop.train(config, tmp_path / "run")
    evaluation = cbert.evaluate(tmp_path / "run")
    assert evaluation.summary["task"] == "focal"
    assert {"majority", "majority given context"} < set(evaluation.summary["results"])
    (one,) = evaluation.queries.head(1).to_dict("records")
    context = json.loads(one["context"])
    predictor = cbert.load(tmp_path / "run", batch_sizes=(1,))
    best = predictor.predict(one["text"], context).labels[0]
    assert (predictor.task, best.label) == ("classification", one["prediction"])
    assert best.probability == pytest.approx(one["probability"], rel=1e-4)
    monkeypatch.delitem(tasks.TASKS, "focal")
    with pytest.raises(UserError, match=r"config\.json: task\.name is 'focal', which no file"):
        cbert.load(tmp_path / "run")


def test_what_a_task_must_keep_to_be_used_as_another(monkeypatch):
    class Loss(Classification):
        name = "mine"

        def loss(self, params, batch, rngs):
            return 0.0, {}

    class Metrics(Loss):
        def metric_values(self, predictions, queries):
            return {}

    class Decides(Loss):
        metrics = ()  # Baselines have whichever decides, but two runs are compared in one.

    class Head(Loss):
        @classmethod
        def head(cls, config, schema, options):
            return None

    named = [tasks.extended(task) for task in (Classification, Loss, Metrics, Head)]
    assert named == ["classification", "classification", "classification", "mine"]
    extending = (Loss, Metrics, Decides, Head)
    changes = [tasks.changed(task, Classification, measured=True) for task in extending]
    assert changes == [[], [], [], ["head"]]
    alike = [likeness.measured_alike(Classification, task) for task in extending]
    assert alike == [True, False, False, True]
    monkeypatch.setitem(tasks.TASKS, "own", Loss)
    with pytest.raises(UserError, match="registered as 'own' has the name 'mine'; give its"):
        config_lib.check(small(task__name="own"))


def test_a_task_that_extends_masked_items_has_a_section_of_its_own(monkeypatch):
    class Mine(MaskedItem):
        name = "mine"

    monkeypatch.setitem(tasks.TASKS, "mine", Mine)
    rate = {"masking": "rate", "mask_rate": 0.5}
    config = small(task__name="mine", train__item_embeddings="vectors.npy")
    config.task.mine.update(rate)
    config_lib.check(config)
    options = tasks.task_options(config)
    assert (options.masking, options.mask_rate, options.sampled_items) == ("rate", 0.5, 0)
    assert Mine.positions_and_candidates(options, SimpleNamespace(items="abc"), 6) == (3, 3, 0)
    config.task.masked_item.update(rate)
    with pytest.raises(UserError, match=r"task\.masked_item\.mask_rate is 0\.5, which is for"):
        config_lib.check(config)
