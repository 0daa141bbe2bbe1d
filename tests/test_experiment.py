"""A training loop of one's own: its arguments, what it saves, and how it goes on."""

import dataclasses
import json
import re
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import StandardCheckpointer

import cbert
from tests.conftest import small
from tests.test_training import flat, restored


def test_what_is_no_step_or_no_parameters_is_refused(data_dir):
    experiment = cbert.build(small("none", data__dir=data_dir, model__layers=1))
    for step in ("a", 2.5, -1, None, [1], 2**31):
        for function in (experiment.batch, experiment.learning_rate):
            with pytest.raises(cbert.UserError) as refusal:
                function(step)
            advice = "give a whole number from 0, the first, to 2147483647"
            assert str(refusal.value) == f"step is {step!r}; {advice}"
    assert experiment.learning_rate(2**31 - 1) == 0
    batches = [experiment.batch(step) for step in (0, np.int64(0), experiment.state.step)]
    for batch in batches:
        jax.tree.map(np.testing.assert_array_equal, batch.columns, batches[0].columns)
    params = experiment.state.params
    longer = jax.tree.map(lambda leaf: np.zeros((1, *leaf.shape)), params)
    wrong = (experiment.state, "TrainState"), ({"params": params}, "dict"), (longer, "dict")
    for value, kind in wrong:
        with pytest.raises(cbert.UserError) as refusal:
            experiment.validate(value)
        expected = f"params, a {kind}, are not those of the model; give state.params"
        assert str(refusal.value) == expected


def test_an_interrupted_training_saves_and_interrupts_its_caller(data_dir, tmp_path):
    config = small("none", data__dir=data_dir, model__layers=1)
    interrupts = cbert.Callbacks(step=lambda event: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as interrupt:
        cbert.train(config, tmp_path / "run", interrupts)
    expected = f"{tmp_path}/run: stopped and saved; the same call goes on"
    assert str(interrupt.value) == expected
    assert restored(config, tmp_path / "run")[0] == 1


def test_what_a_notebook_shows_of_it_is_a_line(data_dir):
    experiment = cbert.build(small("none", data__dir=data_dir, model__layers=1))
    leaves = jax.tree.leaves(experiment.state.params)
    parameters = f"{sum(leaf.size for leaf in leaves):,} parameters in {len(leaves)} arrays"
    assert repr(experiment.state) == f"TrainState(step 0, {parameters})"
    examples = len(experiment._train)
    assert repr(experiment) == (
        f"Experiment(none, masked_item, {examples:,} examples, {parameters})"
    )
    assert len(repr(experiment.schema)) < 200


def test_a_state_is_saved_once(data_dir, tmp_path):
    experiment = cbert.build(small("none", data__dir=data_dir, model__layers=1))
    state = dataclasses.replace(experiment.state, step=experiment.state.step + 3)
    with pytest.raises(cbert.UserError, match="; give what train_step returned, and"):
        experiment.save(tmp_path / "run", state.params, 1.0)
    for value in (float("nan"), "x", None, np.array([1, 2])):
        with pytest.raises(cbert.UserError) as refusal:
            experiment.save(tmp_path / "run", state, value)
        expected = f"value is {value!r}; give the metric's, a finite number"
        assert str(refusal.value) == expected
    with pytest.raises(cbert.UserError) as refusal:
        experiment.save(None, state, 1.0)
    assert str(refusal.value) == "workdir is None; give a path"
    smaller = dataclasses.replace(state, params={"a": np.ones(3)})
    with pytest.raises(cbert.UserError) as refusal:
        experiment.save(tmp_path / "run", smaller, 1.0)
    assert str(refusal.value) == (
        "state is TrainState(step 3, 3 parameters in 1 arrays), of another model; give what "
        "this train_step returned"
    )
    assert not (tmp_path / "run").exists()
    experiment.save(tmp_path / "run", state, jnp.float32(2))
    other = dataclasses.replace(state, params=jax.tree.map(jnp.zeros_like, state.params))
    for step in (2, 3):
        earlier = dataclasses.replace(other, step=jnp.int32(step))
        expected = f"run has a checkpoint of step 3, and the state is of step {step}; save into"
        with pytest.raises(cbert.UserError, match=expected):
            experiment.save(tmp_path / "run", earlier, 1.0)
    kept = restored(experiment.config, tmp_path / "run")[1]
    for name, value in flat(state.params).items():
        np.testing.assert_array_equal(kept[name], value)


def test_the_best_state_of_those_saved_is_kept(data_dir, tmp_path):
    experiment = cbert.build(small("none", data__dir=data_dir, model__layers=1))

    def save(step, value):
        state = dataclasses.replace(experiment.state, step=jnp.int32(step))
        experiment.save(tmp_path / "run", state, value)

    for step, value in ((1, 1.0), (2, 2.0), (3, 3.0), (4, 3.0)):
        save(step, value)
    assert sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir()) == [
        *("1", "3", "4")
    ]
    assert cbert.load(tmp_path / "run").step == 1
    save(5, 2.0)
    (tmp_path / "run/checkpoints/5/checksums.json").unlink()  # As a kill may leave it.
    save(5, 0.5)
    assert cbert.load(tmp_path / "run").step == 5
    save(6, 3.0)
    finished = json.loads((tmp_path / "run/finished.json").read_text())
    assert finished == {"step": 6, "best": 0.5, "best_step": 5}


def test_a_loop_goes_on_from_a_saved_state_bit_for_bit(data_dir, tmp_path):
    config, workdir = small("gs", data__dir=data_dir, model__layers=1), tmp_path / "run"
    experiment = cbert.build(config)
    step, state = jax.jit(experiment.train_step, donate_argnums=0), experiment.state
    for number in range(5):
        state, _ = step(state, experiment.batch(number), experiment.key)
        if number in (1, 2):
            experiment.save(workdir, state, number)
        if number == 1:
            params = StandardCheckpointer().restore(workdir / "checkpoints/2/params")
            jax.tree.map(np.testing.assert_array_equal, params, state.params)
    other = cbert.build(config)
    again = jax.jit(other.train_step)
    for source, checkpoint, first in ((other, "best", 2), (experiment, "last", 3)):
        now = source.restore(workdir, checkpoint)
        assert int(now.step) == first
        for number in range(first, 5):
            now, _ = again(now, other.batch(number), other.key)
        jax.tree.map(np.testing.assert_array_equal, now, state)
    deeper = cbert.build(small("gs", data__dir=data_dir, model__layers=2))
    other_data = dataclasses.replace(other.schema, kind="sequence")
    for source, directory, checkpoint, message in (
        (other, workdir, 4, "checkpoint is '4'; use best, last or one of: 2, 3"),
        (other, tmp_path / "none", "last", "none is not a run's work directory"),
        (other, None, "last", "workdir is None; give a path"),
        (deeper, workdir, "last", "another config: model.layers (1 there, 2 here)"),
        (dataclasses.replace(other, schema=other_data), workdir, "last", "of another schema"),
    ):
        with pytest.raises(cbert.UserError, match=re.escape(message)):
            source.restore(directory, checkpoint)


def test_a_state_of_the_last_step_ends_the_run(data_dir, tmp_path):
    config = small("none", data__dir=data_dir, model__layers=1)
    experiment = cbert.build(config)
    last = dataclasses.replace(experiment.state, step=jnp.int32(config.train.steps))
    experiment.save(tmp_path / "run", last, np.float32(2))
    result = cbert.train(config, tmp_path / "run")
    assert (result.finished, result.best, result.best_step) == (True, 2.0, config.train.steps)
