"""A run that goes on with other devices or cores than it began on says so."""

import os
import subprocess
import sys

import pytest

from cbert.config import flat
from cbert.training import hardware, loop
from cbert.training.callbacks import Callbacks
from tests.conftest import ROOT, small


def stopped(data_dir, workdir):
    """A run that was stopped at step 2 and, resumed on the same devices, at step 4."""
    config = small("none", data__dir=data_dir)
    for step in (2, 4):
        loop.train(config, workdir, Callbacks(step=lambda event, at=step: event.step == at))
    return config


def test_a_run_says_where_it_goes_on_with_other_devices(data_dir, tmp_path, capsys):
    config = stopped(data_dir, tmp_path / "run")
    printed = capsys.readouterr().out
    assert f"resuming {tmp_path}/run at step 2" in printed
    assert "goes on with" not in printed
    (tmp_path / "run" / hardware.FILE).write_text("8 devices (NVIDIA H200)\n")
    loop.train(config, tmp_path / "run")
    printed = capsys.readouterr().out
    assert printed.startswith(f"resuming {tmp_path}/run at step 4\n{tmp_path}/run began on 8 ")
    assert f"(NVIDIA H200) and goes on with {hardware.describe()}: its numbers may" in printed


@pytest.mark.soak
def test_a_run_on_other_devices_than_it_began_on(data_dir, tmp_path):
    workdir = tmp_path / "run"
    config = stopped(data_dir, workdir)
    began = hardware.describe()
    assert began.startswith("1 device (cpu) of ")

    fields = flat(config.to_dict()).items()
    command = [sys.executable, "-m", "experiments.train", "--config=configs/base.py:none"]
    command += [*(f"--config.{name}={value}" for name, value in fields), "--nodiagnose"]
    xla = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=2"
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(cores)])  # The process that is started inherits it.
    try:
        done = subprocess.run(
            [*command, f"--workdir={workdir}"],
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": xla},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.sched_setaffinity(0, cores)
    assert done.stdout.startswith(
        f"resuming {workdir} at step 4\n"
        f"{workdir} began on {began} and goes on with 2 devices (cpu) of 1 core: its numbers "
        "may differ from those of an unbroken run\n"
    )
    assert ", 2 devices (cpu) of 1 core; the first step of each" in done.stdout
    assert (workdir / hardware.FILE).read_text() == began + "\n"
