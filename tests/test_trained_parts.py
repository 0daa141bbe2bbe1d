"""Parts of a model that are not trained, or at rates of their own."""

import jax
import numpy as np
import optax
import pytest

from cbert.errors import UserError
from cbert.training import loop, optimizer, packing
from cbert.training import run as run_lib
from tests import steps
from tests.text_data import load, prepare_texts, small_text


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    prepare_texts(folder, "label")
    return folder


@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_frozen_parts_stay_and_others_move(directory, kernels):
    _, schema = load(directory, "label")
    config = small_text("classification", directory, model__kernels=kernels)
    config.train.frozen = "embedding, blocks_0"
    before = steps.flat(run_lib.set_up(config, schema).state.params)
    state, _ = steps.steps(config, schema, 3)
    after = steps.flat(state.params)
    for name, values in after.items():
        frozen = name.split("/")[0] in ("embedding", "blocks_0")
        assert np.array_equal(values, before[name]) == frozen, name


@pytest.mark.parametrize("packs", [True, False])
def test_frozen_parts_add_nothing_to_the_clipped_norm(packs):
    """Adam's first moment is a tenth of the gradient, which is not clipped."""
    adam = optimizer.make_optimizer(0.0, 1.0, 0.9, 0.999, packs)
    made = optimizer.freeze(adam, ["a/kernel", "b"])
    names = {"a": ("kernel", "bias"), "b": ("kernel",)}
    params = {part: {name: np.ones(1, "f") for name in own} for part, own in names.items()}
    gradients = {"a": {"kernel": 1e3, "bias": 0.5}, "b": {"kernel": -1e3}}
    gradients = {
        part: {n: np.float32([g]) for n, g in own.items()} for part, own in gradients.items()
    }
    state = jax.jit(made.init)(params)
    updates, state = jax.jit(made.update)(gradients, state, params)
    moment = optax.tree.get(packing.per_leaf(state, params), "mu")
    assert moment["a"]["bias"] == pytest.approx(0.05)
    moved = {path for path, update in steps.flat(updates).items() if update.any()}
    assert moved == {"a/bias"}


def test_a_part_is_whole_names_of_a_path():
    path = ("context_encoder", "feature_a/b", "embedding")
    parts = ("context_encoder", "context_encoder/feature_a/b", "/".join(path))
    assert [optimizer.is_part(path, part) for part in parts] == [True] * 3
    others = ("", "context", "context_encoder/feature_a/", f"{parts[2]}/x", "embedding")
    assert not any(optimizer.is_part(path, part) for part in others)


def test_frozen_names_must_exist(directory):
    _, schema = load(directory, "label")
    config = small_text("classification", directory, train__frozen="embeding")
    with pytest.raises(UserError, match="names 'embeding'; the model's parts are blocks_0"):
        run_lib.set_up(config, schema)


def test_frozen_parts_of_a_fresh_run_are_random(directory, tmp_path, capsys):
    config = small_text("classification", directory, train__frozen="pooler,blocks_0")
    loop.train(config, tmp_path / "run")
    start, end = capsys.readouterr().err.split(" parameters are frozen, and those of ")
    assert start.startswith("warning: train.frozen: ")
    assert end.startswith("pooler (all), blocks_0 (all) are random; leave these parts out, or ")
    loop.train(config, tmp_path / "run")
    assert "frozen" not in capsys.readouterr().err


def test_rates_of_layers_and_of_the_context_by_hand(directory):
    """The first update of AdamW is the learning rate times a sign, so factors show in it."""
    _, schema = load(directory, "label")
    config = small_text("classification", directory, model__layers=2)
    config.optimizer.update({"weight_decay": 0.0, "clip_norm": 0.0})
    plain_run = run_lib.set_up(config, schema)
    before = steps.flat(plain_run.state.params)
    plain_run.advance(0)
    config.optimizer.update({"layer_decay": 0.5, "context_rate": 3.0})
    own_run = run_lib.set_up(config, schema)
    own_run.advance(0)
    plain, own = (steps.flat(run.state.params) for run in (plain_run, own_run))
    factors = {
        "embedding": 0.125,
        "blocks_0": 0.25,
        "blocks_1": 0.5,
        "conditioning": 3.0,
        "context_encoder": 3.0,
        "pooler": 1.0,
        "classifier": 1.0,
    }
    assert {name.split("/")[0] for name in before} == set(factors)
    # The first of two steps of warm-up has half of the learning rate, 0.01.
    moved = [np.abs(plain[name] - values).max() for name, values in before.items()]
    assert max(moved) == pytest.approx(0.005, rel=1e-3)
    for name, values in before.items():
        expected = factors[name.split("/")[0]] * (plain[name] - values)
        np.testing.assert_allclose(own[name] - values, expected, atol=1e-6, err_msg=name)
