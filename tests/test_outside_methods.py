"""A method is one file and one line in the registry: three from outside the package."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cbert
from cbert.errors import UserError
from cbert.model import conditioning, contextual_bert
from cbert.sweep import points
from cbert.training import config as config_lib
from cbert.training import loop
from tests import test_benchmark
from tests.conftest import run, small, some
from tests.models import batch, build, encode, made
from tests.outside_methods import METHODS

# A config file that brings its own method along.
CONFIG_FILE = """
from cbert.model import conditioning
from configs import stylist
from tests.outside_methods import METHODS

conditioning.METHODS.update(METHODS)
get_config = stylist.get_config
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for name, method in METHODS.items():
        monkeypatch.setitem(conditioning.METHODS, name, method)


@pytest.mark.parametrize("method", some(METHODS, "film"))
def test_it_trains_from_a_config_and_reads_the_context(data_dir, tmp_path, method):
    config = small(method, data__dir=data_dir, train__steps=40, model__layers=2)
    config.optimizer.learning_rate = 1e-2
    config.train.update({"log_every": 5, "eval_every": 40, "checkpoint_every": 40})
    loop.train(config, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    losses = [row["loss"] for row in rows if row["split"] == "train"]
    assert losses[-1] < losses[0] - 0.3
    predictor = cbert.load(tmp_path, batch_sizes=(1,))
    assert predictor.method == method
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


def test_film_begins_as_the_model_without_it(schema, train_split):
    codes, context = batch(train_split)
    model = build(schema, "film")
    params = contextual_bert.initialize(model, jax.random.key(0))
    plain = {name: value for name, value in params.items() if name != "conditioning"}
    expected = encode(build(schema, "none"), plain, codes, context)
    np.testing.assert_array_equal(encode(model, params, codes, context), expected)
    params["conditioning"]["modulation_2"]["bias"] = jnp.repeat(jnp.array([0.5, 2.0]), 16)
    np.testing.assert_allclose(
        encode(model, params, codes, context), 1.5 * expected + 2, rtol=1e-5, atol=1e-5
    )


def missing(schema, rows):
    return {
        feature.name: np.repeat(np.asarray(feature.missing()), rows, axis=0)
        for feature in schema.features
    }


def test_a_prefix_of_missing_features_alone_is_no_prefix(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "prefix")
    plain = {name: value for name, value in params.items() if name != "conditioning"}
    expected = encode(build(schema, "none"), plain, codes, context)
    absent = encode(model, params, codes, missing(schema, len(codes)))
    np.testing.assert_allclose(absent, expected, atol=1e-5)
    assert np.abs(encode(model, params, codes, context) - expected).max() > 0.01


@pytest.mark.soak
def test_without_features_cross_attention_reads_the_null_token(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "cross_attention")
    absent = missing(schema, len(codes))
    before = encode(model, params, codes, absent)
    present = encode(model, params, codes, context)
    params["conditioning"]["tokens"] = jax.tree.map(
        jnp.zeros_like, params["conditioning"]["tokens"]
    )
    np.testing.assert_allclose(encode(model, params, codes, absent), before, atol=1e-6)
    assert np.abs(encode(model, params, codes, context) - present).max() > 0.01
    params["conditioning"]["null"] += 1.0
    assert np.abs(encode(model, params, codes, absent) - before).max() > 0.01


def test_its_section_is_checked_and_overridden(data_dir, schema):
    config = small("film", data__dir=data_dir, model__film__shift=False)
    config_lib.check(config)
    assert config_lib.build_model(config, schema).encoder.options.shift is False
    assert "model.film.shift" in config_lib.fields(config)
    with pytest.raises(KeyError, match="Did you mean"):
        small("film", model__film__shfit=False)
    del config.unlock().model.film
    with pytest.raises(UserError, match=r"model\.film\.shift is missing"):
        config_lib.check(config)


@pytest.mark.parametrize("method", METHODS)
def test_a_sweep_knows_its_baselines(data_dir, schema, method):
    config = small("gsu", data__dir=data_dir)
    (constant,) = points.expand(config, [], [f"{method}_constant"], 1, [], schema)
    assert constant.overrides["model.constant_context"]
    if method != "prefix":
        with pytest.raises(UserError, match=f"{method} has more parameters than gsu"):
            points.expand(config, [], [f"{method}_wide"], 1, [], schema)
        return
    (wide,) = points.expand(config, [], [f"{method}_wide"], 1, [], schema)
    widened = wide.apply(config)
    size, gsu = (
        contextual_bert.count(config_lib.build_model(one, schema)) for one in (widened, config)
    )
    unit = 2 * (2 * 16 + 1)  # One more hidden unit in each of two layers adds so many.
    assert gsu <= size < gsu + unit


@pytest.mark.parametrize("method", METHODS)
def test_its_operations_are_those_of_the_traced_model(method, monkeypatch):
    test_benchmark.test_operations_are_those_of_the_traced_model(method, monkeypatch)


# Beside [None]'s count: d = 128, four layers, C = 736, F features.
COUNTS = {
    "film": 546432 + 4 * (736 + 1) * 2 * 128,
    "prefix": 546432 + (736 + 12) * 128,
    "cross_attention": 546432
    + (736 + 12 + 1) * 128  # Projections, type embeddings, the null token.
    + 4 * (4 * (128 * 128 + 128) + 2 * 128),
}


@pytest.mark.parametrize("method", METHODS)
def test_describe_counts_it_by_a_config_file_of_its_own(method, tmp_path):
    file = tmp_path / "outside.py"
    file.write_text(CONFIG_FILE)
    done = run("describe", f"--config={file}:{method}", "--config.data.dir=/nowhere")
    assert int(done.stdout.split()[-1]) == COUNTS[method]
    if method == "film":
        override = "--config.model.film.shift=false"
        done = run("describe", f"--config={file}:film", "--config.data.dir=/nowhere", override)
        assert int(done.stdout.split()[-1]) == 546432 + 4 * (736 + 1) * 128
