"""Every method and config takes steps; runs resume, stop, and handle non-finite losses."""

import dataclasses
import json
import re
import time

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet
import pytest
from tqdm import tqdm

from cbert import parallel
from cbert.data.batching import Batches
from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.model.conditioning import NAMES
from cbert.report import report_data
from cbert.schema import schema_file
from cbert.training import checkpoint, console, loop, schedule
from cbert.training import config as config_lib
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training.writer import Writer
from configs import base, meals, quickstart, stylist
from tests.conftest import run, small, some
from tests.steps import flat, ones, steps


def plain(data_dir, **overrides):
    """The config of the smallest model, for what does not depend on the model."""
    return small("none", data__dir=data_dir, model__layers=1, **overrides)


@pytest.mark.parametrize("method", some(NAMES, "gsu"))
def test_every_method_learns(data_dir, schema, method):
    layers = 2 if method == "gsu" else 1  # With one block its state would not be updated.
    config = small(method, data__dir=data_dir, train__steps=80, model__layers=layers)
    config.optimizer.learning_rate = 1e-2
    _, rows = steps(config, schema, 80)
    losses = [row["loss"] / row["loss_count"] for row in rows]
    assert abs(losses[0] - np.log(80)) < 1.0
    assert np.mean(losses[-20:]) < np.log(80) - 0.2


@pytest.mark.parametrize("module", [base, meals, quickstart, stylist])
def test_every_config_builds_a_step(data_dir, schema, module, monkeypatch):
    """The step is traced, not compiled: its results have the shapes of its inputs."""
    monkeypatch.setattr(parameter_tree, "initialize", ones)
    for point in module.sweep():
        config = module.get_config(point["model.method"])
        if not config.data.name:
            config.data.name = "small"
        config_lib.check(config)
    config.data.update({"dir": data_dir, "name": "small"})
    config.train.batch_size = 64
    made = run_lib.set_up(config, schema)
    fed, _, length = made.source.feed(0, 1)
    arguments = (made.state, made.resident, fed, made.indices, made.key)
    traced = jax.make_jaxpr(lambda: made.step(*arguments, length), return_shape=True)
    program, (after, metrics) = traced()
    if module is base:  # Each dropout has a barrier: of the embeddings, and of each sub-layer.
        assert str(program).count("optimization_barrier") > 2 * config.model.layers
    for path, leaf in flat_shapes(after.params).items():
        assert leaf == flat_shapes(made.state.params)[path], path
    assert metrics["loss"].shape == (1,)


def flat_shapes(params):
    flattened = flax.traverse_util.flatten_dict(params)
    return {"/".join(path): (leaf.shape, leaf.dtype) for path, leaf in flattened.items()}


def test_other_options_take_a_step(data_dir, schema):
    config = small(
        "gs",
        data__dir=data_dir,
        model__layers=1,
        model__dtype="bfloat16",
        model__numerical="linear",
        model__positions=True,
        model__initializer="bert",
        task__masked_item__masking="rate",
        task__masked_item__corrupt=True,
        train__context_dropout=0.3,
        task__masked_item__sampled_items=16,
        optimizer__clip_norm=0.0,
        optimizer__schedule="linear",
    )
    config.task.masked_item.mask_rate = 0.4
    state, rows = steps(config, schema, 2)
    assert rows[0]["loss_count"] > 32
    assert np.isfinite(rows[1]["loss"])
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(state.params))


def restored(config, workdir):
    model = config_lib.build_model(
        config,
        schema_file.load(workdir / "schema.json"),
    )
    shapes = parameter_tree.shapes(model)
    with checkpoint.Checkpoints(workdir) as checkpoints:
        step, params = checkpoints.restore_params("last", parallel.replicated(shapes))
    return step, flat(params)


def trained(config, workdir):
    loop.train(config, workdir)
    return *restored(config, workdir), (workdir / "metrics.jsonl").read_text()


def test_resuming_equals_an_unbroken_run_bit_for_bit(data_dir, tmp_path, monkeypatch):
    """The run evaluates every 3 steps, saves every 2, logs every 4, and stops in between."""
    config = plain(data_dir, train__steps=9)
    config.train.update({"log_every": 4, "eval_every": 3, "checkpoint_every": 2})
    unbroken = trained(config, tmp_path / "unbroken")

    class KilledError(Exception):
        pass

    def dying():
        raise KilledError

    batches, broken = Batches.__call__, tmp_path / "broken"
    with monkeypatch.context() as patch:
        patch.setattr(
            Batches,
            "__call__",
            lambda self, step: dying() if step == 5 else batches(self, step),
        )
        with pytest.raises(KilledError):
            loop.train(config, broken)
    assert not (broken / "checkpoints" / "9").exists()
    step, params, metrics = trained(config, broken)
    assert step == unbroken[0] == 9
    assert metrics == unbroken[2]
    for name, value in unbroken[1].items():
        assert (params[name] == value).all(), name
    rows = [json.loads(line) for line in unbroken[2].splitlines()]
    assert rows[-1]["split"] == "validation"
    rate = schedule.build(config)  # A row has that of its last step, and steps count from 0.
    rates = {row["step"]: row["learning_rate"] for row in rows if row["split"] == "train"}
    assert rates == {step: pytest.approx(float(rate(step - 1))) for step in (4, 8, 9)}


def test_the_best_and_the_last_two_are_kept(data_dir, tmp_path):
    """The run saves every step that improves, every third step and the last one."""
    config = plain(data_dir, train__steps=8, optimizer__schedule="constant")
    config.train.update({"eval_every": 1, "checkpoint_every": 3})
    # At so high a rate the loss goes up and down.
    config.optimizer.update({"learning_rate": 0.1, "warmup_steps": 1})
    progress = loop.train(config, tmp_path / "run")
    saved, best = {3, 6, 8}, float("inf")
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["split"] == "validation" and row["cross_entropy"] < best:
            saved.add(row["step"])
            best = row["cross_entropy"]
    kept = {int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert len(saved) > 3
    assert kept == {progress.best_step, *sorted(saved)[-2:]}


def test_early_stopping(data_dir, tmp_path):
    config = plain(data_dir, train__steps=30, optimizer__schedule="constant")
    config.train.update({"eval_every": 2, "checkpoint_every": 30, "patience": 3})
    config.optimizer.update({"learning_rate": 3.0, "warmup_steps": 30})
    progress = loop.train(config, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    evaluated = [row["step"] for row in rows if row["split"] == "validation"]
    assert evaluated[-1] == progress.best_step + 3 * 2 < 30
    # Starting it again does not train on.
    assert loop.train(config, tmp_path / "run") == progress


def test_a_run_finds_the_directory_taken_by_another_config_meanwhile(
    data_dir, tmp_path, monkeypatch
):
    ours, theirs = (plain(data_dir, train__steps=steps) for steps in (4, 2))
    set_up = run_lib.set_up

    def set_up_meanwhile(*arguments):
        monkeypatch.setattr(run_lib, "set_up", set_up)
        loop.train(theirs, tmp_path)
        return set_up(*arguments)

    monkeypatch.setattr(run_lib, "set_up", set_up_meanwhile)
    with pytest.raises(UserError, match=r"another config: train.steps \(2 there, 4 here\)"):
        loop.train(ours, tmp_path)
    assert json.loads((tmp_path / "finished.json").read_text())["step"] == 2


def test_speed_counts_neither_the_time_nor_the_examples_of_compiled_steps(capsys):
    config, row = base.get_config(), {"loss": 1.0, "learning_rate": 0.1}
    config.train.batch_size = 8
    clock = console.Clock(config, 1, 0, tqdm(disable=True))
    clock.leave_out(0.0, steps=5)
    assert clock.report(5, row) == {}
    assert "examples/s" not in capsys.readouterr().out
    clock.leave_out(0.0, steps=4)
    time.sleep(0.05)
    assert 0 < clock.report(10, row)["examples_per_second"] <= 8 / 0.05
    assert "examples/s" in capsys.readouterr().out


def test_sequences_whose_order_is_not_read_are_pointed_out(data_dir, schema, capsys):
    sequences = dataclasses.replace(schema, kind="sequence")
    for positions in (False, True):
        run_lib.set_up(plain(data_dir, model__positions=positions), sequences)
        pointed_out = "so that no order is read; set model.positions=true"
        assert (pointed_out in capsys.readouterr().err) == (not positions)


def test_numbers_that_are_not_finite_stop_the_run(data_dir, tmp_path):
    config = plain(data_dir, train__steps=40, optimizer__schedule="constant")
    config.train.update({"eval_every": 40, "checkpoint_every": 1, "log_every": 40})
    config.optimizer.update({"learning_rate": 1e36, "warmup_steps": 0, "clip_norm": 0.0})
    with pytest.raises(UserError, match=r"at step \d+ .*its batch begins train-\d+, train-"):
        loop.train(config, tmp_path / "run")
    params = restored(config, tmp_path / "run")[1]
    assert all(np.isfinite(value).all() for value in params.values())


def test_a_report_says_at_which_step_a_run_diverged(data_dir, tmp_path):
    config = plain(data_dir, train__steps=9)
    config.train.update({"log_every": 9, "checkpoint_every": 9})  # A validation comes first.
    config.optimizer.update({"learning_rate": 1e36, "warmup_steps": 0, "clip_norm": 0.0})
    with pytest.raises(UserError, match=r"at step 2 .*its batch begins train-"):
        loop.train(config, tmp_path / "none-0")
    with pytest.raises(UserError, match="is not finished: it diverged at step 2 of 9;"):
        report_data.load(tmp_path, "test")
    # What a run that goes on has left behind must not speak of the steps that it dropped.
    with Writer(tmp_path / "none-0", step=0):
        pass
    with pytest.raises(UserError, match=r"is not finished \(no evaluation yet of 9\);"):
        report_data.load(tmp_path, "test")


def test_numbers_that_are_not_finite_are_skipped_and_counted(data_dir, schema):
    made = run_lib.set_up(plain(data_dir, train__on_nonfinite="skip"), schema)
    good = made.state
    bad = jax.tree.map(np.array, good.params)
    for leaf in jax.tree.leaves(bad):
        leaf.flat[0] = np.nan
    kept = flat(bad)
    made.state = parallel.replicate(state_lib.TrainState(good.step, bad, good.opt_state))
    _, metrics = made.advance(0)
    assert {name: float(value[0]) for name, value in metrics.items()} == {
        "loss": 0,
        "loss_count": 0,
        "gradient_norm": 0,
        "gradient_norm_count": 0,
        "skipped": 1,
    }
    assert int(made.state.step) == 1
    for name, value in flat(made.state.params).items():
        np.testing.assert_array_equal(value, kept[name], err_msg=name)
    again = run_lib.set_up(plain(data_dir, train__on_nonfinite="skip"), schema)
    _, metrics = again.advance(0)
    assert float(metrics["skipped"][0]) == 0
    assert np.isfinite(metrics["loss"][0])
    assert not np.array_equal(
        flat(again.state.params)["embedding/items"], kept["embedding/items"]
    )


def test_the_model_never_beats_bayes_optimal(data_dir, tmp_path):
    config = small("gs", data__dir=data_dir, train__steps=150, train__eval_every=150)
    config.model.layers = 1
    config.train.checkpoint_every = 150
    config.optimizer.learning_rate = 5e-3
    loop.train(config, tmp_path / "run")
    done = run("evaluate", f"--workdir={tmp_path / 'run'}", "--by=occasion", "--by=gender")
    assert "Bayes-optimal without context" in done.stdout
    tables = re.findall(r"^(occasion|gender) +queries", done.stdout, re.M)
    assert tables == ["occasion", "gender"]
    table = pyarrow.parquet.read_table(tmp_path / "run" / "eval" / "test.parquet")
    columns = table.to_pydict()
    difference = np.array(columns["bayes_optimal_log_probability"]) - np.array(
        columns["log_probability"]
    )
    error = difference.std() / np.sqrt(len(difference))
    assert difference.mean() > -3 * error
    result = json.loads((tmp_path / "run" / "eval" / "test.json").read_text())
    without = -np.mean(columns["bayes_optimal_without_context_log_probability"])
    best = -np.mean(columns["bayes_optimal_log_probability"])
    assert without > best + 0.2
    share = (without + np.mean(columns["log_probability"])) / (without - best)
    assert f"  {share:.1%}" in done.stdout.split("share of the context's worth")[1]
    assert result["queries"] == len(difference)
    assert result["results"]["model"]["cross_entropy"]["mean"] == pytest.approx(
        -np.mean(columns["log_probability"]), rel=1e-6
    )
