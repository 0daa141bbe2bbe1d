"""The launchers of clusters, on this machine: a Ray cluster of two workers, submitit's jobs.

pip install ".[ray,slurm]" && pytest -m soak tests/test_clusters.py
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from cbert.errors import UserError
from cbert.sweep import jobs, launchers, points
from tests.conftest import ROOT, refused, run
from tests.test_sweep import sweep_command

pytestmark = pytest.mark.soak
SWEEP = ("--methods=none,gsu", "--nofeature_importance", "--config.train.steps=600")


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    """The same sweep on this machine alone."""
    workdir = tmp_path_factory.mktemp("whole") / "runs"
    finish(*start(data_dir, workdir, "--workers=2"))
    return workdir


def start(data_dir, workdir, *more):
    """A sweep in a process of its own, and its log."""
    module, *rest = sweep_command(data_dir, workdir, *SWEEP, *more)
    command = [sys.executable, "-m", f"experiments.{module}", *rest]
    log = workdir.parent / "sweep.txt"
    with log.open("w") as file:
        return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file), log


def finish(process, log):
    assert process.wait(timeout=300) == 0, log.read_text()


def assert_equal(workdir, whole):
    for name in ("none-seed0", "gsu-seed0"):
        for file in ("metrics.jsonl", "finished.json", "eval/test.json"):
            assert (workdir / name / file).read_text() == (whole / name / file).read_text()


def training(workdir):
    """The process that trains in a directory, once it has saved a checkpoint."""
    saved = workdir / "checkpoints"
    while not saved.is_dir() or not any(path.name.isdigit() for path in saved.iterdir()):
        time.sleep(0.05)
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if f"--workdir={workdir}" in command and "experiments.train" in command:
            return process
    raise AssertionError("it has ended already")


def test_ray_goes_on_when_a_worker_dies(data_dir, tmp_path, whole):
    """One of two workers is killed in the middle of its run, which another then ends."""
    pytest.importorskip("ray", reason="Ray is not installed: the extra ray")
    workdir = tmp_path / "runs"
    sweep = start(data_dir, workdir, "--launcher=ray", "--config.train.checkpoint_every=20")
    process = training(workdir / "gsu-seed0")
    worker = process.parent()
    assert "ray::" in " ".join(worker.cmdline())
    worker.kill()
    finish(*sweep)
    assert not process.is_running()
    assert "resuming" in (workdir / "gsu-seed0" / "log.txt").read_text()
    assert_equal(workdir, whole)


def test_submitit_runs_the_same(data_dir, tmp_path, whole):
    """The runs are submitit's local jobs, which take the same code path as Slurm's."""
    pytest.importorskip("submitit", reason="submitit is not installed: the extra slurm")
    workdir = tmp_path / "runs"
    finish(*start(data_dir, workdir, "--launcher=slurm", "--slurm=cluster=local"))
    assert_equal(workdir, whole)
    assert not [path for path in workdir.iterdir() if path.name == "slurm"]


@pytest.mark.parametrize("setting", ["gpu=1", "timeout_min=4h", "cluster=x", "mem_gb=1.5"])
def test_what_slurm_or_submitit_does_not_take_is_one_line(data_dir, tmp_path, setting):
    """Without Slurm even valid parameters of submitit are refused, before any run."""
    pytest.importorskip("submitit", reason="submitit is not installed: the extra slurm")
    workdir = tmp_path / "runs"
    flags = (*SWEEP, "--launcher=slurm", f"--slurm={setting}")
    assert "Slurm's parameters were refused: " in refused(
        *sweep_command(data_dir, workdir, *flags)
    )
    assert not list(tmp_path.glob("runs/*-seed0"))


def test_what_slurm_refuses_ends_the_sweep_in_one_line(data_dir, tmp_path):
    pytest.importorskip("submitit")
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\necho invalid partition >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    command = sweep_command(data_dir, tmp_path / "runs", *SWEEP, "--launcher=slurm")
    done = run(*command, check=2, PATH=f"{tmp_path}:{os.environ['PATH']}")
    # What Slurm says stands before it.
    assert done.stderr.splitlines()[-1] == (
        "error: Slurm refused none-seed0: invalid partition; correct its parameters"
    )
    assert "Traceback" not in done.stderr


# The first start waits to be asked to save, and the second one finds what was saved.
_SAVES = """
test -e saved && exit
trap 'sleep 3; touch saved; exit' TERM USR2
touch up
sleep 60 & wait
"""


@pytest.mark.parametrize("minutes", [5, 60])
def test_a_job_that_slurm_ends_saves_and_goes_on(tmp_path, minutes):
    """To submitit it came to its time limit after five minutes, and else was preempted.

    As Slurm's, the signal reaches each process of the job.
    """
    pytest.importorskip("submitit")
    command = "sh", "-c", f"cd {tmp_path}{_SAVES}"
    point = points.Point("a-seed0", "a", {points.SEED: 0})
    job = jobs.Job((point,), (tmp_path / point.name,), command, ("true",))
    parameters = {"cluster": "local", "timeout_min": minutes}
    launcher = launchers.Slurm(tmp_path / ".slurm", parameters)
    launcher.start(job)
    while not (tmp_path / "up").exists():
        time.sleep(0.05)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # One of another test may have ended.
            if "submitit.core._submit" in process.cmdline() or process.name() == "sh":
                process.send_signal(signal.SIGUSR2)
    while (failure := launcher.poll(job)) is None:
        time.sleep(0.05)
    assert failure == ""
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("address", ["10.0.0.1", "here:there", "auto"])
def test_a_ray_cluster_that_is_not_there_is_one_line(address):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=rf"^the Ray cluster '{address}' was not reached: "):
        launchers.Ray(address)
