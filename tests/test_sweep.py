"""Sweeps expand to the right runs, refuse mistakes, and do nothing twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cbert.errors import UserError
from cbert.sweep import jobs, launchers, points, states
from cbert.sweep.running import Sweep
from cbert.training import loop
from tests.conftest import ROOT, refused, run, small
from tests.test_stopping import assert_same


def sweep_command(data_dir, workdir, *more):
    return (
        "sweep",
        "--config=configs/base.py",
        *(f"--config.data.dir={data_dir}", "--config.data.name=small"),
        *("--config.model.dimension=8", "--config.model.heads=2", "--config.model.layers=1"),
        *("--config.train.batch_size=32", "--config.train.length_buckets=1"),
        *("--config.train.log_every=5", "--config.train.eval_every=1000"),
        *(f"--workdir={workdir}", *more),
    )


def test_what_seeds_in_one_program_cannot_do_is_refused_before_they_start(data_dir, tmp_path):
    command = sweep_command(data_dir, tmp_path, "--methods=gs", "--seeds=2", "--vmap_seeds")
    line = refused(*command, "--set=train.patience=0,2")
    assert "gs-patience=2-seed0: train.patience ends each seed at its own step" in line
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_into_the_directory_of_a_run_is_refused(data_dir, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    line = refused(*sweep_command(data_dir, tmp_path, "--methods=gs"))
    assert line.endswith(
        f"{tmp_path} is the directory of one run; give the sweep another one\n"
    )


def python(module, *arguments):
    return [sys.executable, "-m", f"experiments.{module}", *arguments]


def test_a_run_is_finished_once_its_best_step_is_evaluated_as_asked(tmp_path):
    evaluated, trained = tmp_path / "eval" / "test.json", tmp_path / "finished.json"
    evaluated.parent.mkdir()
    assert not states.is_finished(tmp_path, "test")
    evaluated.write_text('{"step": 20, "checkpoint": "best"}')
    assert not states.is_finished(tmp_path, "test")
    # It is the newer file, as it may be in a copy of the directory.
    trained.write_text('{"step": 40, "best": 1.5, "best_step": 20}')
    assert not states.is_finished(tmp_path, "test")
    evaluated.with_suffix(".parquet").touch()  # Reports need its table, too.
    assert states.is_finished(tmp_path, "test")
    assert not states.is_finished(tmp_path, "validation")
    assert not states.is_finished(tmp_path, "test", importance=True)
    evaluated.write_text('{"step": 20, "feature_importance": {}}')
    assert states.is_finished(tmp_path, "test", importance=True)
    for damaged in ("{", '["step", 20]'):
        evaluated.write_text(damaged)
        assert not states.is_finished(tmp_path, "test")
    evaluated.write_text('{"step": 20, "feature_importance": {}}')
    trained.write_text('{"step": 60, "best": 1.4, "best_step": 60}')
    assert not states.is_finished(tmp_path, "test")


def test_a_run_that_waits_shows_how_far_it_is(tmp_path):
    made = [points.Point(f"gs-seed{n}", "gs", {points.SEED: n}) for n in range(2)]
    (tmp_path / "gs-seed0").mkdir()
    row = {"step": 30, "split": "train", "loss": 2.5}
    validated = {"step": 35, "split": "validation", "cross_entropy": 2.6}
    lines = [json.dumps(one) + "\n" for one in (row, validated)]
    (tmp_path / "gs-seed0" / "metrics.jsonl").write_text("".join(lines))
    queue = jobs.make(made, tmp_path, False, lambda *_: (), lambda _: ())
    rows = Sweep(queue, 40, "test").table().splitlines()[1:]
    cells = ["gs-seed0", "waiting", "30/40", "2.5000"], ["gs-seed1", "waiting"]
    assert tuple(map(str.split, rows)) == cells
    assert states.duration(3722.6) == "1:02:03"


@pytest.mark.soak
def test_a_killed_sweep_goes_on_and_repeats_nothing(data_dir, tmp_path):
    """The sweep is stopped in its first run, then killed in its second."""
    workdir = tmp_path / "runs"
    common = sweep_command(
        data_dir, workdir, "--methods=none,gs", "--seeds=1", "--workers=1",
        "--config.train.steps=40",
    )  # fmt: skip
    listed = run(*common, "--dry_run").stdout
    assert listed.count("waiting") == 2
    assert not workdir.exists()
    command = python(*common)
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    first = workdir / "none-seed0"
    while not (first / "metrics.jsonl").exists() or not states.progress(first)[0]:
        assert started.poll() is None
        time.sleep(0.02)
    started.send_signal(signal.SIGINT)
    output, _ = started.communicate(timeout=30)
    assert started.returncode == 0
    assert output.endswith("stopped; the same command goes on\n")
    last = [line for line in output.splitlines() if line.startswith("none-seed0")][-1]
    assert f"  {states.progress(first)[0]}/40  " in last
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    done = workdir / "none-seed0" / "eval" / "test.json"
    while not done.exists():
        assert started.poll() is None
        time.sleep(0.2)
    time.sleep(1.5)
    started.send_signal(signal.SIGKILL)
    started.wait()
    written = done.stat().st_mtime_ns
    output = run(*common).stdout
    assert output.count("finished") >= 2
    assert done.stat().st_mtime_ns == written
    rows = [json.loads(line) for line in (workdir / "gs-seed0" / "metrics.jsonl").open()]
    steps = [row["step"] for row in rows if row["split"] == "train"]
    assert steps == list(range(5, 45, 5))
    # Another config in the same directory is refused before anything runs.
    error = refused(*common, "--config.train.steps=50")
    assert "belongs to another config: train.steps (40 there, 50 here)" in error


def wait_for_checkpoint(run_dir, after, process):
    """Waits until a run has a checkpoint of a later step; returns its step."""
    while True:
        names = [path.name for path in run_dir.glob("checkpoints/*")]
        if steps := [int(name) for name in names if name.isdecimal() and int(name) > after]:
            return max(steps)
        assert process.poll() is None
        time.sleep(0.02)


ALONE = ("--methods=gs", "--workers=1", "--nofeature_importance")
BROKEN = ("--config.train.steps=200", "--config.train.checkpoint_every=10")


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    """An unbroken run, trained by a process that does not belong to its sweep.

    The process outlives its sweep, so the next sweep waits for it, then evaluates.
    """
    workdir = tmp_path_factory.mktemp("whole") / "gs-seed0"
    _, *flags = sweep_command(data_dir, workdir, "--config.model.method=gs", *BROKEN)
    trained = subprocess.Popen(python("train", *flags), cwd=ROOT)
    wait_for_checkpoint(workdir, 0, trained)
    trained.send_signal(signal.SIGSTOP)
    flags = sweep_command(data_dir, workdir.parent, *ALONE, *BROKEN)
    sweep = subprocess.Popen(python(*flags), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    line = f"{workdir} is in use by process {trained.pid} on {os.uname().nodename}; waiting"
    log = workdir / "log.txt"
    while not log.exists() or line not in log.read_text():
        assert sweep.poll() is None
        time.sleep(0.05)
    trained.send_signal(signal.SIGCONT)
    assert re.search("gs-seed0 +finished +200/200", sweep.communicate(timeout=120)[0])
    assert trained.wait() == sweep.returncode == 0
    assert f"{workdir} is finished, at step 200" in log.read_text()
    return workdir


@pytest.mark.soak
def test_a_sweep_killed_twice_and_started_at_once_equals_an_unbroken_run(
    data_dir, tmp_path, whole
):
    """Nothing here waits for the processes of the killed sweep; the next one has to cope."""
    broken, step = tmp_path / "gs-seed0", 0
    flags = sweep_command(data_dir, tmp_path, *ALONE)
    for _ in range(2):
        sweep = subprocess.Popen(python(*flags, *BROKEN), cwd=ROOT, stdout=subprocess.DEVNULL)
        step = wait_for_checkpoint(broken, step, sweep)
        sweep.kill()
        sweep.wait()
    output = run(*flags, *BROKEN).stdout
    assert re.search("gs-seed0 +finished +200/200", output)
    assert f"resuming {broken} at step" in (broken / "log.txt").read_text()
    assert_same(broken, whole)
    for name in ("test.json", "test.parquet"):
        assert (broken / "eval" / name).read_bytes() == (whole / "eval" / name).read_bytes()


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (
            2,
            "step 5\nerror: a: b\nstep 6\n" + "step\n" * 9,
            "error: a: b\nit ended with exit code 2",
        ),
        (
            1,
            "Traceback (most recent call last):\n  File\nOne: a\n\nDuring handling ...\n\n"
            "Traceback (most recent call last):\n  File\n    raise\n    ^^^\nTwo: b\nnote\n",
            "Two: b\nnote\nit ended with exit code 1",
        ),
        (
            -9,
            "a\n\rtraining 0%\rtraining \x1b[1m9%\n",
            "a\ntraining \\x1b[1m9%\nit was killed by SIGKILL",
        ),
        (-6, "", "it was killed by SIGABRT"),
        (
            -6,
            "step\nE1\nLLVM: no memory\nFatal Python error: Aborted\n\nFile\n  File\n"
            + "File\n" * 5,
            "E1\nLLVM: no memory\nFatal Python error: Aborted\nit was killed by SIGABRT",
        ),
        (-35, "", "it was killed by signal 35"),
    ],
)
def test_why_a_command_failed(code, output, expected):
    assert jobs.failure(code, output) == expected


def test_seeds_that_have_begun_go_on_without_new_ones(tmp_path):
    made = [points.Point(f"gs-seed{n}", "gs", {points.SEED: n}) for n in range(6)]
    for seed in range(4):
        (tmp_path / f"gs-seed{seed}" / "checkpoints" / "10").mkdir(parents=True)
    for seed in (0, 1):
        (tmp_path / f"gs-seed{seed}" / "finished.json").write_text("{}")
    (tmp_path / "gs-seed4" / "checkpoints" / "10.orbax-checkpoint-tmp").mkdir(parents=True)
    queue = jobs.make(made, tmp_path, True, lambda *_: (), lambda _: ())
    names = ["gs-seed0, gs-seed1", "gs-seed2, gs-seed3", "gs-seed4, gs-seed5"]
    assert [job.name for job in queue] == names


@pytest.mark.soak
def test_a_sweep_that_is_stopped_has_not_ended_although_a_run_has_failed(tmp_path):
    """The first command fails and the second one waits, until Ctrl-C after the failure."""
    made = [points.Point(f"gs-seed{n}", "gs", {points.SEED: n}) for n in range(3)]
    waits = {0: "exit 3", 1: "exec sleep 60", 2: "exec sleep 60"}

    def train(group, paths):
        return "sh", "-c", waits[group[0].overrides[points.SEED]]

    sweep = Sweep(jobs.make(made, tmp_path, False, train, lambda _: ("true",)), 10, "test")

    def interrupt(_):
        if sweep.failures:
            raise KeyboardInterrupt

    sweep.run(launchers.Local(2), interrupt)
    phases = [state.phase for state in sweep.states.values()]
    assert phases[:2] == [states.FAILED, states.STOPPED]
    assert not sweep.ended()
    (why,) = [failure for _, failure in sweep.failures]
    assert "exit code 3" in why


@pytest.mark.soak
def test_a_seed_that_has_not_begun_takes_nothing_from_others(data_dir, tmp_path):
    config = small(data__dir=data_dir, model__layers=1)
    paths = [tmp_path / "one", tmp_path / "two"]
    loop.train_seeds(config, [0], paths[:1], False)
    kept = sorted(path.name for path in (paths[0] / "checkpoints").iterdir())
    with pytest.raises(UserError, match=r"two has no checkpoint and .*one is at step"):
        loop.train_seeds(config, [0, 1], paths, False)
    assert sorted(path.name for path in (paths[0] / "checkpoints").iterdir()) == kept


@pytest.mark.soak
def test_seeds_together_and_a_failure(data_dir, tmp_path):
    """Two seeds in one program get a directory each; a failure is shown and stops nothing."""
    blocked = tmp_path / "runs" / "gsu-seed0" / "checkpoints"
    common = sweep_command(
        data_dir, tmp_path / "runs", "--methods=gsu,none", "--seeds=2", "--vmap_seeds",
        "--config.train.steps=5",
    )  # fmt: skip
    blocked.parent.mkdir(parents=True)
    (blocked.parent / "log.txt").write_text("")
    blocked.write_text("in the way")
    # The run's directory has no config, and its schema is a directory.
    os.rename(blocked, blocked.parent / "schema.json")
    (blocked.parent / "schema.json").unlink()
    (blocked.parent / "schema.json").mkdir()
    done = run(*common, check=1)
    log = tmp_path / "runs" / "gsu-seed0" / "log.txt"
    assert done.stderr == (
        f"gsu-seed0, gsu-seed1 failed:\n"
        f"  error: {blocked.parent / 'schema.json'} is not a file; give another path\n"
        f"  it ended with exit code 2\n"
        f"  its log is {log}\n"
    )
    for seed in (0, 1):
        result = json.loads(
            (tmp_path / "runs" / f"none-seed{seed}" / "eval" / "test.json").read_text()
        )
        assert result["seed"] == seed
        assert "feature_importance" in result
