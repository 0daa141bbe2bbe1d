"""What a config file's `sweep()` may return, how runs are started, and how fast they are."""

import dataclasses
import json
import pathlib
import re
import socket
import threading

import pytest
from absl import flags

from cbert import distributed, processes
from cbert.errors import UserError
from cbert.sweep import jobs, launchers, points, running, states
from cbert.sweep.states import State
from cbert.training import config_file
from experiments import job_commands
from tests.conftest import refused, run
from tests.test_sweep import sweep_command


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  pass", "sweep() returned None; return a list of dicts"),
        (
            "  return {'model.method': 'gs'}",
            "sweep() returned {'model.method': 'gs'}; return a l",
        ),
        ("  return []", "sweep() returned nothing; return a dict for each run"),
        ("  yield {'seed': 7}", "sweep() sets seed; leave it out, and give seeds"),
        ("  return [{'data': {'name': 'x'}}]", "sweep() sets data.name, but a sweep is on one"),
        ("  return ['none']", "sweep() has 'none'; each entry is a dict from field to value"),
        ("  return [{'model.method': ['gs']}]", "sweep() has the method ['gs']; give its name"),
        ("  return {}['gs']", "own.py:2: KeyError: 'gs'"),
    ],
)
def test_a_sweep_that_is_no_list_of_overrides(tmp_path, text, message):
    (tmp_path / "own.py").write_text(f"def sweep():\n{text}\n")
    with pytest.raises(UserError, match=re.escape(message)):
        config_file.read_sweep(str(tmp_path / "own.py"))


def test_a_sweep_may_nest_its_fields_and_be_a_generator(tmp_path):
    (tmp_path / "own.py").write_text("def sweep():\n  yield {'model': {'method': 'gs'}}\n")
    assert config_file.read_sweep(str(tmp_path / "own.py")) == [{"model.method": "gs"}]
    (tmp_path / "other.py").write_text("")
    assert config_file.read_sweep(str(tmp_path / "other.py")) is None


@pytest.mark.parametrize(
    ("given", "tasks", "message"),
    [
        (
            ("host:1", 2),
            "1",
            "is 'host:1'; give each of them its own number, from 0: give proc",
        ),
        (("host", 2, 0), "1", "is 'host'; give coordinator=HOST:PORT, a free port of the"),
        (("", 2, 1), "1", "process 1 of 2 has no coordinator; give coordinator=HOST:P"),
        (("", 0, 1), "1", "process 1 of 0 has no coordinator"),
        (("host:1", 2, 2), "1", "the process number is 2 of 2"),
        (("", 0, 0), "abc", "SLURM_NTASKS is 'abc', unset it to train alone"),
    ],
)
def test_processes_that_cannot_meet(monkeypatch, given, tasks, message):
    monkeypatch.setenv("SLURM_NTASKS", tasks)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    with pytest.raises(UserError, match=re.escape(message)):
        distributed.connect(*given)


def test_a_port_at_which_process_0_cannot_listen_is_refused():
    with socket.create_server(("", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = f"process 0 cannot listen at '{address}' .*in use.*; give all .* a free port"
        with pytest.raises(UserError, match=line):
            distributed.connect(address, 2, 0)


def test_a_log_has_a_line_for_each_run_whose_state_changed(capsys, monkeypatch):
    runs = [State(f"gs-rate={one} {one}-seed0", states.WAITING, 900) for one in "abc"]
    shown, seconds = job_commands.Shown(), iter([100.0, 101.0, 102.0, 103.0, 170.0, 171.0])
    monkeypatch.setattr(job_commands.time, "monotonic", lambda: next(seconds))

    def lines(**changes):
        runs[0] = dataclasses.replace(runs[0], **changes)
        shown(states.table(runs))
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    assert [line[0] for line in lines()] == ["run", "gs-rate=a", "gs-rate=b", "gs-rate=c"]
    assert lines(phase=states.TRAINING) == [["gs-rate=a", "a-seed0", "training"]]
    assert lines(step=10, loss=2.0) == []
    assert lines(step=20) == []
    assert lines(step=30) == [["gs-rate=a", "a-seed0", "training", "30/900", "2.0000"]]
    runs[2] = dataclasses.replace(runs[2], phase=states.FAILED)
    finished, failed = lines(phase=states.FINISHED, step=900)
    assert (finished[2], failed[2]) == (states.FINISHED, states.FAILED)


def test_directories_with_commas_are_one_value_of_a_list_each():
    paths = [pathlib.Path("runs/a,b"), pathlib.Path('runs/"c"'), pathlib.Path("runs/d")]
    written = job_commands.evaluate("test", False, paths)
    (value,) = [one.partition("=")[2] for one in written if one.startswith("--workdir=")]
    assert flags.ListParser().parse(value) == [str(path) for path in paths]


def test_runs_have_the_config_of_the_sweeps_start_although_its_file_was_edited(tmp_path):
    file, runs = tmp_path / "mine.py", tmp_path / "a, b"
    text = (
        "from configs import base\ndef get_config(method):\n  return base.get_config(method)\n"
    )
    file.write_text(text)
    config = config_file.read(f"{file}:gs")
    config.data.name, config.train.steps = "mine", 70
    overrides = [{points.SEED: seed, "model.dropout": 0.25} for seed in (3, 4)]
    made = [points.Point(f"seed{own[points.SEED]}", "gs", own) for own in overrides]
    for together, seeds in ((False, [3, 4]), (True, [3])):
        queue = jobs.make(made, runs, together, job_commands.train, lambda _: ())
        job_commands.keep_configs(config, queue)
        file.write_text("raise ValueError")
        given = [dict(part.split("=", 1) for part in job.train[3:]) for job in queue]
        read = [config_file.read(one["--config"]) for one in given]
        values = [(one.seed, one.train.steps, one.model.dropout) for one in read]
        assert values == [(seed, 70, 0.25) for seed in seeds]
    assert given[0]["--seeds"] == "3,4"
    assert {path.name for path in runs.iterdir()} == {".configs"}


@pytest.mark.parametrize("gibibytes", [1, 3])
def test_runs_at_a_time_fit_into_a_container(monkeypatch, gibibytes):
    """Each takes 2 GiB of what the container has, however much the machine has free."""
    monkeypatch.setattr(processes, "devices", lambda: ("cpu", 1))
    monkeypatch.setattr(processes, "machine_memory", lambda: gibibytes * 2**30)
    assert len(launchers.slots(0)) == 1
    assert len(launchers.slots(4)) == 4


def test_each_run_has_an_accelerator_of_its_own(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(processes, "devices", lambda: ("gpu", 2))
    for workers, indices in ((0, ["0", "1"]), (1, ["0"])):
        made = launchers.slots(workers)
        assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in made] == indices
    monkeypatch.setattr(processes, "devices", lambda: ("tpu", 2))
    with pytest.raises(UserError, match=r"workers is 3, .* give workers=2 at most, or 0"):
        launchers.slots(3)


def test_more_runs_than_gpus_share_them(monkeypatch):
    """Of five runs, three share the first, so that each may take a quarter of its memory."""
    own, old = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
    for name in ("CUDA_VISIBLE_DEVICES", own, old):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processes, "devices", lambda: ("gpu", 2))
    shared = [slot.environment for slot in launchers.slots(5)]
    assert shared == [{"CUDA_VISIBLE_DEVICES": n, own: "0.250"} for n in "01010"]
    for given in (own, old):  # JAX refuses both at once.
        with monkeypatch.context() as environment:
            environment.setenv(given, ".1")
            assert launchers.slots(5)[0].environment == {"CUDA_VISIBLE_DEVICES": "0"}


def test_a_run_has_such_a_part_of_the_gpus_as_ray_gives():
    assert [launchers.gpus_of_run(None, n) for n in (0, 4)] == [0, 1]
    assert [launchers.gpus_of_run(n, 2) for n in (0, 1e-4, 0.5, 1, 2)] == [0, 1e-4, 0.5, 1, 2]
    for wanted, why in ((1.5, "no run 1.5 GPUs"), (1e-5, "no run 1e-05"), (3, "cluster has 2")):
        with pytest.raises(UserError, match=rf"{why}.*; give gpus_per_run=N"):
            launchers.gpus_of_run(wanted, 2)


@pytest.mark.soak
def test_a_dry_run_shows_what_failed_until_it_is_run_again(data_dir, tmp_path):
    made = [points.Point(f"gs-seed{n}", "gs", {points.SEED: n}) for n in range(2)]
    log = tmp_path / "gs-seed0" / "log.txt"

    def sweep(*ends):
        def train(group, _):
            return "sh", "-c", f"echo training; {ends[group[0].overrides[points.SEED]]}"

        queue = jobs.make(made, tmp_path, False, train, lambda _: ("true",))
        return running.Sweep(queue, 10, "test")

    sweep("exit 3", "true").run(launchers.Local(2), lambda _: None)
    assert log.read_text().endswith("the sweep saw this fail: it ended with exit code 3\n")
    flags = ("--config=configs/base.py", f"--config.data.dir={data_dir}", "--methods=gs")
    flags += ("--config.data.name=small", "--seeds=2", "--dry_run", f"--workdir={tmp_path}")
    _, *rows = run("sweep", *flags).stdout.splitlines()
    assert [row.split() for row in rows[:2]] == [
        ["gs-seed0", "failed"],
        ["gs-seed1", "waiting"],
    ]
    assert rows[3:] == [
        f"gs-seed0 failed; its log is {log}",
        "without --dry_run what failed is run again",
    ]
    again, shown = sweep("sleep 1", "true"), []
    again.run(launchers.Local(1), shown.append)
    assert "failed" not in "".join(shown)
    assert again.failed_before
    assert not sweep("true", "true").failed_before


class Queue:
    """A launcher whose job waits for 100 seconds, then writes rows, and then has ended.

    It is the clock, too, which is looked at once a second; rows come every ten seconds.
    """

    def __init__(self, path):
        self.now, self._path = 0.0, path

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def start(self, _):
        return True

    def poll(self, _):
        if self.now >= 100 and self.now % 10 == 0:
            row = {"step": int(self.now - 90) * 2, "split": "train", "loss": 1.0}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return "" if self.now >= 140 else None

    def stop(self):
        pass


def test_the_time_in_a_queue_is_not_in_the_rate(tmp_path, monkeypatch):
    """A run of 2 steps a second waits for 100 seconds, and has taken 20 steps by then."""
    (job,) = jobs.make(
        [points.Point("gs-seed0", "gs", {points.SEED: 0})],
        *(tmp_path, False, lambda *_: (), lambda _: ()),
    )
    job.paths[0].mkdir()
    queue = Queue(job.paths[0] / "metrics.jsonl")
    monkeypatch.setattr(running, "time", queue)
    sweep, shown = running.Sweep([job], 200, "test"), {}

    def show(_):
        (state,) = sweep.states.values()
        shown[queue.now] = state.rate, state.left

    sweep.run(queue, show)
    assert {shown[now] for now in range(110)} == {(None, None)}
    assert {shown[now] for now in range(110, 120)} == {(2.0, 80.0)}
    assert {shown[now] for now in range(130, 140)} == {(2.0, 60.0)}


class Interrupted(launchers.Local):
    """Ctrl-C arrives when a job has been started, and before the sweep has noted it."""

    def start(self, job):
        super().start(job)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("launcher", "command"), [(launchers.Local, ("true",)), (Interrupted, ("sleep", "60"))]
)
def test_a_sweep_that_has_ended_leaves_no_job_and_no_thread(tmp_path, launcher, command):
    """`tune` has a launcher for each rung."""
    made = [points.Point("gs-seed0", "gs", {points.SEED: 0})]
    todo = jobs.make(made, tmp_path, False, lambda *_: command, lambda _: ())
    threads = threading.active_count()
    running.Sweep(todo, 10, "test").run(launcher(1), lambda _: None)
    assert threading.active_count() == threads


def test_a_finished_sweep_names_the_report_of_its_split(data_dir, tmp_path):
    steps, run_directory = "--config.train.steps=2", tmp_path / "gs-seed0"
    _, *flags = sweep_command(data_dir, run_directory, "--config.model.method=gs", steps)
    run("train", *flags)
    (run_directory / "eval").mkdir()
    (run_directory / "eval" / "validation.json").write_text('{"step": 2}')
    (run_directory / "eval" / "validation.parquet").touch()
    own = ("--methods=gs", "--nofeature_importance", "--split=validation", steps)
    printed = run(*sweep_command(data_dir, tmp_path, *own)).stdout
    assert printed.endswith(f".report --workdir={tmp_path} --split=validation\n")


def test_the_flag_of_another_launcher_is_refused(data_dir, tmp_path):
    command = sweep_command(data_dir, tmp_path, "--methods=gs", "--dry_run")
    assert refused(*command, "--gpus_per_run=0.5") == (
        "error: --gpus_per_run is for --launcher=ray, and the launcher is local; leave it out, "
        "or give --launcher=ray\n"
    )
