"""One run in two processes on this machine: equal to one process, and ending together."""

import json
import os
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from tests.conftest import ROOT, small
from tests.test_stopping import arguments, wait_for
from tests.test_training import restored

pytestmark = pytest.mark.soak


def start(data_dir, workdir, devices=1, processes=1, steps=12):
    """One process, or several that train one run."""
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} "
        f"--xla_force_host_platform_device_count={devices}",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for process in range(processes):
        command = [
            *arguments(data_dir, workdir, steps=steps),
            *("--config.model.dropout=0.0", "--config.train.context_dropout=0.2"),
        ]
        if processes > 1:
            command += [
                f"--coordinator=127.0.0.1:{port}",
                *(f"--num_processes={processes}", f"--process_id={process}"),
            ]
        log = open(workdir.parent / f"{workdir.name}-{process}.txt", "w+")  # noqa: SIM115
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        )
    return started


def logs(workdir):
    return "".join(path.read_text() for path in workdir.parent.glob(f"{workdir.name}-*.txt"))


def test_two_processes_equal_one_with_two_devices(data_dir, tmp_path):
    """At dropout 0, for its noise is the device's own."""
    one, two = tmp_path / "one", tmp_path / "two"
    for workdir, devices, processes in ((one, 2, 1), (two, 1, 2)):
        for process in start(data_dir, workdir, devices, processes):
            assert process.wait(timeout=120) == 0, logs(workdir)
    config = small(train__steps=12)
    expected, found = (restored(config, path)[1] for path in (one, two))
    assert set(expected) == set(found)
    for name, value in expected.items():
        here = found[name]
        if name.endswith("key_value/bias"):
            # The keys' bias has no gradient but rounding, which Adam scales up.
            here, value = here[16:], value[16:]
        np.testing.assert_allclose(here, value, atol=2e-5, rtol=2e-5, err_msg=name)
    rows = [
        [json.loads(line) for line in (path / "metrics.jsonl").open()] for path in (one, two)
    ]
    assert [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]


def test_one_killed_ends_the_other(data_dir, tmp_path):
    """Within a minute, with a message; then the pair goes on."""
    workdir = tmp_path / "run"
    first, second = start(data_dir, workdir, processes=2, steps=100_000)
    wait_for(workdir / "metrics.jsonl", first)
    second.send_signal(signal.SIGKILL)
    began = time.monotonic()
    code = first.wait(timeout=90)
    assert time.monotonic() - began < 60
    assert code != 0
    assert "another process of this run has ended" in logs(workdir)
