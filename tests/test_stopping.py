"""Runs that are told to stop, killed, or started twice; real processes and real signals."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator

from cbert.errors import UserError
from cbert.sweep import jobs, launchers, points, running
from cbert.tasks.metric import Metric
from cbert.training import config as config_lib
from cbert.training import loop
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training import workdir as workdir_lib
from cbert.training.checkpoint import Checkpoints
from cbert.training.state import Progress
from cbert.training.writer import Writer
from tests.conftest import ROOT, refused, small
from tests.test_checkpoints import flip
from tests.test_training import restored

STEPS = 24


def arguments(data_dir, workdir, method="gsu", steps=STEPS):
    return [
        *(sys.executable, "-m", "experiments.train", f"--config=configs/base.py:{method}"),
        *(f"--config.data.dir={data_dir}", "--config.data.name=small"),
        *("--config.model.dimension=16", "--config.model.heads=2", "--config.model.layers=2"),
        *("--config.model.feed_forward=32", "--config.train.batch_size=32"),
        *(f"--config.train.steps={steps}", "--config.train.log_every=4"),
        *("--config.train.eval_every=6", "--config.train.checkpoint_every=5"),
        *("--config.train.length_buckets=1", "--config.optimizer.warmup_steps=2"),
        *("--config.eval.batch_size=64", f"--workdir={workdir}"),
    ]


def start(data_dir, workdir, **more):
    return subprocess.Popen(
        arguments(data_dir, workdir, **more),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path, process):
    while not path.exists() or not path.stat().st_size:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)


def wait_for_steps(process):
    """Waits until the process prints that it takes steps, or resumes them."""
    line = next(line for line in process.stdout if line.startswith(("step", "resuming")))
    assert line


@pytest.fixture(scope="module")
def unbroken(data_dir, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("unbroken") / "run"
    process = start(data_dir, workdir)
    assert process.wait() == 0, process.stdout.read()
    return workdir


def steps_in_tensorboard(workdir):
    """The steps of each tag, as TensorBoard itself reads them."""
    events = event_accumulator.EventAccumulator(str(workdir)).Reload()
    return {
        tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def assert_same(workdir, unbroken):
    """Asserts equal bits in parameters, metrics and best step; TensorBoard has steps once."""
    config = config_lib.load(unbroken)
    here, there = (restored(config, path)[1] for path in (workdir, unbroken))
    assert set(here) == set(there)
    for name, value in here.items():
        np.testing.assert_array_equal(value, there[name], err_msg=name)
    rows, expected = ((path / "metrics.jsonl").read_text() for path in (workdir, unbroken))
    assert rows == expected
    results = [json.loads((path / "finished.json").read_text()) for path in (workdir, unbroken)]
    assert results[0] == results[1]
    shown = steps_in_tensorboard(workdir)
    np.testing.assert_equal(shown, steps_in_tensorboard(unbroken))
    assert all(len(set(steps)) == len(steps) for steps in shown.values())


@pytest.mark.soak
def test_killed_and_told_to_stop_it_goes_on(data_dir, tmp_path, unbroken):
    """The run is killed once, then stopped three times; `tests.soak` kills 25 times."""
    workdir = tmp_path / "run"
    process = start(data_dir, workdir)
    wait_for(workdir / "config.json", process)
    time.sleep(random.uniform(0, 4))
    process.kill()
    process.communicate()
    # A process that is killed while it writes leaves such files; this one has ended.
    (workdir / "eval").mkdir()
    for name in ("metrics.jsonl", "finished.json", "eval/test.parquet"):
        (workdir / f"{name}.{process.pid}.tmp").write_text("a half")
    alive = workdir / "eval" / f"test.json.{os.getpid()}.tmp"
    alive.write_text("a half")
    written = alive.open()
    fcntl.flock(written, fcntl.LOCK_EX)  # As its writer does, which may run elsewhere.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        process = start(data_dir, workdir)
        wait_for_steps(process)
        began = time.monotonic()
        process.send_signal(number)
        output = process.stdout.read()
        process.wait(timeout=30)
        assert time.monotonic() - began < 10
        assert process.returncode == 0, output
        assert ("stopped and saved" in output) != (workdir / "finished.json").exists()
    process = start(data_dir, workdir)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert_same(workdir, unbroken)
    assert list(workdir.rglob("*.tmp")) == [alive]
    written.close()


def test_tensorboard_hides_what_a_killed_process_wrote_later(tmp_path):
    """The process is killed before its first checkpoint, or after the one at step 5."""
    for start, steps in ((0, [4, 6]), (0, [4, 6]), (5, [6])):
        with Writer(tmp_path, start) as writer:
            for step in steps:
                writer.write(step, "train", {"loss": 1.0})
    assert steps_in_tensorboard(tmp_path) == {"train/loss": [4, 6]}


def test_tensorboard_shows_all_rows_though_the_clock_was_set_back(tmp_path, monkeypatch):
    """The run starts at noon, eleven and ten; TensorBoard reads files in the order of names."""
    for first, hour in ((0, 12), (20, 11), (40, 10)):
        monkeypatch.setattr(time, "time", lambda hour=hour: 1.8e9 + 3600.0 * hour)
        with Writer(tmp_path, first) as writer:
            for step in range(first + 1, first + 21):
                writer.write(step, "train", {"loss": 1.0})
    monkeypatch.undo()
    assert steps_in_tensorboard(tmp_path) == {"train/loss": list(range(1, 61))}


@pytest.mark.soak
def test_two_runs_in_one_directory(data_dir, tmp_path):
    workdir = tmp_path / "run"
    process = start(data_dir, workdir, steps=100_000)
    wait_for(workdir / "config.json", process)
    command = arguments(data_dir, workdir, steps=100_000)[3:]
    error = refused("train", *command)
    assert f"{workdir} is in use by process {process.pid} on {os.uname().nodename}" in error
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("seeds", "names", "message"),
    [
        ([0], "ab", r"seeds: 1, of work directories: 2 \(.*a, .*b\); each seed needs its own"),
        ([0, 1], "aa", r"seeds: 2, of work directories: 1 \("),
        ([1, 1], "ab", "the seeds are 1, 1; they must differ"),
    ],
)
def test_seeds_and_directories_that_do_not_match_are_refused(
    data_dir, tmp_path, seeds, names, message
):
    config = small(data__dir=data_dir)
    with pytest.raises(UserError, match=message):
        loop.train_seeds(config, seeds, [tmp_path / name for name in names])
    assert not any(tmp_path.iterdir())


def test_seeds_that_share_no_step_lose_nothing(data_dir, tmp_path):
    config = small(data__dir=data_dir, train__steps=6, model__layers=1)
    config.train.update({"checkpoint_every": 6, "eval_every": 6})
    paths = [tmp_path / seed for seed in "01"]
    for seed, path, last in zip((0, 1), paths, (2, 4), strict=True):
        config.seed = seed
        loop.train(
            config, path, loop.Callbacks(step=lambda event, last=last: event.step >= last)
        )
    config.seed = 0
    with pytest.raises(UserError, match="1 have no checkpoint of the same step; train each"):
        loop.train_seeds(config, [0, 1], paths)
    assert (paths[0] / "checkpoints" / "2").is_dir()
    assert (paths[1] / "checkpoints" / "4").is_dir()


@pytest.mark.parametrize(
    ("steps", "damaged", "newest"),
    [
        (((3, 4, 5), (2, 4, 5)), ((), (4, 5)), (5, 2)),  # The older one is too old.
        (((2, 5), (2,)), ((2,), ()), (5, 2)),  # The step that both have is damaged.
    ],
)
def test_a_damaged_seed_costs_another_no_checkpoint(
    data_dir, tmp_path, schema, steps, damaged, newest
):
    """The seeds have listed steps in common, but no usable ones."""
    config = small(data__dir=data_dir, train__steps=6, model__layers=1)
    paths = [tmp_path / seed for seed in "01"]
    for seed, path in enumerate(paths):
        own = small(data__dir=data_dir, train__steps=6, model__layers=1, seed=seed)
        state = run_lib.set_up(own, schema, [seed]).state
        path.mkdir()
        workdir_lib.initialise_workdir(own, schema, path)
        with Checkpoints(path) as checkpoints:
            for step in steps[seed]:
                now = state.replace(step=jnp.asarray(step, jnp.int32))
                checkpoints.save(state_lib.to_saved(now), Progress(2.5, steps[seed][0], 0, {}))
        for step in damaged[seed]:
            flip(next((path / "checkpoints" / str(step) / "params").rglob("*/d/*")))
    with pytest.raises(UserError, match="1 have no checkpoint of the same step; train each"):
        loop.train_seeds(config, [0, 1], paths)
    for path, listed, lost, step in zip(paths, steps, damaged, newest, strict=True):
        with Checkpoints(path) as checkpoints:
            assert {*checkpoints.steps(), *lost} == {*listed}
            assert checkpoints.newest()[0] == step


@pytest.mark.soak
def test_seeds_that_were_killed_apart_go_on_together(data_dir, tmp_path):
    """One seed has a newer checkpoint than the other: both go on from the older one."""
    config = small(data__dir=data_dir, train__steps=6, model__layers=1)
    whole, paths = ([tmp_path / name / seed for seed in "01"] for name in ("whole", "broken"))
    expected = loop.train_seeds(config, [0, 1], whole)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(paths[1] / "checkpoints" / "6")
    for path in paths:
        (path / "finished.json").unlink()
    assert loop.train_seeds(config, [0, 1], paths) == expected
    for path, other in zip(paths, whole, strict=True):
        assert (path / "metrics.jsonl").read_text() == (other / "metrics.jsonl").read_text()
        resumed, params = (restored(config, where)[1] for where in (path, other))
        for name, value in resumed.items():
            np.testing.assert_array_equal(value, params[name], err_msg=name)


@pytest.mark.parametrize(("best", "sign"), [("min", 1), ("max", -1)])
def test_evaluations_since_the_best_are_counted(best, sign):
    """A value that equals the best is no better, and a better one begins to count anew."""
    metric, progress = Metric("own", best, "own"), Progress()
    values = [sign * value for value in (3.0, 3.5, 2.0, 2.0, 4.0)]
    noted = [progress.note(metric, value, 10 + n) for n, value in enumerate(values)]
    assert noted == [True, False, True, False, False]
    assert (progress.best, progress.best_step, progress.waited) == (sign * 2.0, 12, 2)


def test_a_run_that_ends_while_its_sweep_is_stopped_is_finished(tmp_path):
    made = [points.Point("gs-seed0", "gs", {points.SEED: 0})]
    evaluation = tmp_path / "gs-seed0" / "eval"
    evaluation.mkdir(parents=True)
    (evaluation / "test.json").write_text("{}")
    (evaluation / "test.parquet").touch()
    begun, result = evaluation / "begun", tmp_path / "gs-seed0" / "finished.json"
    ends = f"trap 'echo {{}} > {result}; exit' TERM; touch {begun}; while sleep 0.1; do :; done"
    todo = jobs.make(made, tmp_path, False, lambda *_: ("sh", "-c", ends), lambda _: ("true",))

    def interrupt(_):
        if begun.exists():
            raise KeyboardInterrupt

    sweep = running.Sweep(todo, 10, "test")
    sweep.run(launchers.Local(1), interrupt)
    assert result.exists()
    assert sweep.finished()
    assert not sweep.ended()  # A search begins no other rung.
