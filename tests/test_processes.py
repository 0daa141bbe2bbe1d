"""One run in two processes, or on other devices: equal to one that never changed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet
import pytest

from tests.conftest import ROOT, small
from tests.test_stopping import arguments, assert_same, wait_for
from tests.test_training import restored

pytestmark = pytest.mark.soak


def with_devices(count):
    """The environment of a process that has `count` host devices."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    # Nothing listens there: the processes of a run must talk to each other directly.
    return {**os.environ, "XLA_FLAGS": flags, "http_proxy": "http://127.0.0.1:9"}


def start(data_dir, workdir, devices=1, processes=1, steps=12, more=()):
    """Starts one process, or several that train one run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        start_one(data_dir, workdir, port, process, processes, devices, more, steps)
        for process in range(processes)
    ]


def start_one(data_dir, workdir, port, process, processes, devices, more=(), steps=12):
    """Starts one process of a run."""
    command = [
        *arguments(data_dir, workdir, steps=steps),
        *("--config.model.dropout=0.0", "--config.train.context_dropout=0.2"),
        *more,
    ]
    if processes > 1:
        command += [
            f"--coordinator=127.0.0.1:{port}",
            *(f"--num_processes={processes}", f"--process_id={process}"),
        ]
    log = open(workdir.parent / f"{workdir.name}-{process}.txt", "w+")  # noqa: SIM115
    return subprocess.Popen(
        command, cwd=ROOT, env=with_devices(devices), stdout=log, stderr=log
    )


def logs(workdir):
    return "".join(path.read_text() for path in workdir.parent.glob(f"{workdir.name}-*.txt"))


def assert_close(workdir, expected, **overrides):
    """Asserts that two runs have equal parameters and metrics at the same steps."""
    config = small(train__steps=12, **overrides)
    here, there = (restored(config, path)[1] for path in (workdir, expected))
    assert set(here) == set(there)
    for name, value in there.items():
        actual = here[name]
        if name.endswith("key_value/bias"):
            # The keys' bias has no gradient but rounding, which Adam scales up.
            actual, value = actual[16:], value[16:]
        np.testing.assert_allclose(actual, value, atol=2e-5, rtol=2e-5, err_msg=name)
    rows = [
        [json.loads(line) for line in (path / "metrics.jsonl").open()]
        for path in (workdir, expected)
    ]
    assert [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]


def test_two_processes_equal_one_with_two_devices(data_dir, tmp_path):
    """Dropout is 0, because every device drops other entries."""
    one, two = tmp_path / "one", tmp_path / "two"
    for workdir, devices, processes in ((one, 2, 1), (two, 1, 2)):
        for process in start(data_dir, workdir, devices, processes):
            assert process.wait(timeout=120) == 0, logs(workdir)
    assert_close(two, one, model__layers=2)


def test_processes_of_other_configs_do_not_train_together(data_dir, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = tmp_path / "run"
    for process in [
        start_one(data_dir, run, port, n, 2, 1, [f"--config.seed={n}"]) for n in range(2)
    ]:
        assert process.wait(timeout=120) == 2, logs(run)
    message = "the processes 0 and 1 of the run have another config or schema; start all by"
    assert logs(run).count(message) == 2
    assert not run.exists()


CONNECT = """
import sys
from cbert import distributed
distributed.START_SECONDS = 1
distributed.connect(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
"""


def test_a_process_that_finds_no_other_ends_with_one_line():
    with socket.create_server(("", 0)) as other:
        port = str(other.getsockname()[1])
        command = [sys.executable, "-c", CONNECT, port, "1"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    said = "error: the processes of this run did not find each other in 1 s; start"
    assert said in done.stderr.splitlines()[-1]


def test_one_killed_ends_the_other(data_dir, tmp_path):
    """It ends within a minute, with a message; the restarted pair ends as an unbroken one."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for process in start(data_dir, whole, processes=2, steps=60):
        assert process.wait(timeout=300) == 0, logs(whole)
    first, second = start(data_dir, broken, processes=2, steps=60)
    wait_for(broken / "metrics.jsonl", first)
    while '"step": 12' not in (broken / "metrics.jsonl").read_text():  # After a checkpoint.
        assert first.poll() is None, logs(broken)
        time.sleep(0.02)
    second.send_signal(signal.SIGKILL)
    began = time.monotonic()
    code = first.wait(timeout=90)
    assert time.monotonic() - began < 60
    assert code != 0
    assert "another process of this run has ended" in logs(broken)
    assert not (broken / "finished.json").exists()
    for process in start(data_dir, broken, processes=2, steps=60):
        assert process.wait(timeout=300) == 0, logs(broken)
    assert "resuming" in logs(broken)
    assert_same(broken, whole)


@pytest.mark.parametrize("steps", [1, 8])
def test_one_told_to_stop_lets_both_save_and_end(data_dir, tmp_path, steps):
    """They do so however many steps a dispatch has."""
    workdir, every = tmp_path / "run", 10_000 * steps
    more = (
        *(f"--config.train.steps_per_dispatch={steps}", f"--config.train.eval_every={every}"),
        *(f"--config.train.log_every={8 * steps}", f"--config.train.checkpoint_every={every}"),
    )
    pair = start(data_dir, workdir, processes=2, steps=10 * every, more=more)
    try:
        wait_for(workdir / "metrics.jsonl", pair[0])
        pair[1].send_signal(signal.SIGTERM)
        for process in pair:
            assert process.wait(timeout=30) == 0, logs(workdir)
    finally:
        for process in pair:
            process.kill()
    (saved,) = (path for path in (workdir / "checkpoints").iterdir() if path.name.isdecimal())
    assert int(saved.name) % steps == 0
    assert "stopped and saved; the same command goes on" in logs(workdir)


# The script trains, and sends itself a real signal in the middle of the step it is given.
UNTIL = """
import os, signal, sys
import jax
from cbert.training import loop, run
from tests.conftest import small

data_dir, workdir, devices, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
assert jax.device_count() == devices
advance = run.Run.advance

def signalled(self, step, most=1):
    if step + 1 == last:
        os.kill(os.getpid(), signal.SIGTERM)
    return advance(self, step, most)

run.Run.advance = signalled
split = sys.argv[5] == "True"
config = small(data__dir=data_dir, model__dropout=0.0, train__steps=12)
config.train.shard_items = split
loop.train(config, workdir)
"""


def train_until(data_dir, workdir, *parts, split=False):
    """Trains in parts: each is the number of devices and the step at which they stop."""
    for devices, last in parts:
        values = (data_dir, workdir, devices, last, split)
        command = [sys.executable, "-c", UNTIL, *map(str, values)]
        done = subprocess.run(
            command, cwd=ROOT, env=with_devices(devices), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert (workdir / "finished.json").exists() == (last == 12), done.stdout
        assert (workdir / "checkpoints" / str(last)).exists()


def test_a_run_changes_its_devices(data_dir, tmp_path):
    """Four, two and one device train one run, one and four another; all of them evaluate it."""
    train_until(data_dir, tmp_path / "one", (1, 12))
    train_until(data_dir, tmp_path / "fewer", (4, 4), (2, 8), (1, 12))
    train_until(data_dir, tmp_path / "more", (1, 6), (4, 12))
    for name in ("fewer", "more"):
        assert_close(tmp_path / name, tmp_path / "one", model__dropout=0.0)
    assert_equal_evaluations(tmp_path / "more", 1, 2, 4)


def test_a_run_of_split_items_changes_its_devices(data_dir, tmp_path):
    """Four devices, two and one train it, and all of them evaluate it."""
    train_until(data_dir, tmp_path / "one", (1, 12))
    train_until(data_dir, tmp_path / "split", (4, 4), (2, 8), (1, 10), (4, 12), split=True)
    assert_close(tmp_path / "split", tmp_path / "one", model__dropout=0.0)
    assert_equal_evaluations(tmp_path / "split", 1, 4)


# The script says how many parameters are frozen.
FROZEN = """
import sys
from cbert.data import prepared
from cbert.training import initialize, run
from tests.conftest import small

config = small(data__dir=sys.argv[1], train__frozen="embedding", train__batch_size=35)
config.train.shard_items = sys.argv[2] == "True"
schema = prepared.load_schema(config.data.dir, config.data.name)
assert len(schema.items) % 7
initialize.initialised(config, run.set_up(config, schema), [])
"""


def test_frozen_parameters_are_counted_without_padding(data_dir):
    said = [
        subprocess.run(
            [sys.executable, "-c", FROZEN, data_dir, str(split)],
            cwd=ROOT,
            env=with_devices(7),
            capture_output=True,
            text=True,
        ).stderr
        for split in (True, False)
    ]
    assert " parameters are frozen, and those of embedding (all) are random" in said[0]
    assert said[0] == said[1]


def assert_equal_evaluations(workdir, *counts):
    """Asserts that so many devices evaluate a run to the same table."""
    tables = []
    for devices in counts:
        command = [sys.executable, "-m", "experiments.evaluate", f"--workdir={workdir}"]
        subprocess.run(
            command, cwd=ROOT, env=with_devices(devices), check=True, capture_output=True
        )
        table = pyarrow.parquet.read_table(workdir / "eval" / "test.parquet")
        tables.append(table.to_pydict())
    for other in tables[1:]:
        for name in ("id", "position", "item", "rank"):
            assert other[name] == tables[0][name]
        assert other["log_probability"] == pytest.approx(tables[0]["log_probability"], abs=1e-5)
