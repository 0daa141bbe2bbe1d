"""Jobs of a sweep: on which cores they run, and that they end with the sweep."""

import os
import subprocess
import sys
import time

import psutil

from cbert import processes
from tests.conftest import ROOT

# A launcher in which JAX has threads, as where a file of somebody's own computes with it.
LAUNCHER = """
import pathlib, sys
import jax
from cbert.sweep.jobs import Job, run
from cbert.sweep.points import Point

jax.devices()
say = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['SLOT'])"
command = sys.executable, "-c", say
path = pathlib.Path(sys.argv[1])
job = Job((Point("a", "a", {}),), (path,), command, ())
print(repr(run(job, {"SLOT": "one"}, [int(sys.argv[2])])))
"""
PARENT = """
import subprocess, sys, time
from cbert import processes

child = subprocess.Popen(processes.bound([sys.executable, "-c", "import time; time.sleep(99)"]))
print(child.pid, flush=True)
time.sleep(99)
"""


def test_a_job_starts_without_a_fork_that_jax_warns_of(tmp_path):
    core = processes.cores()[-1]
    command = [sys.executable, "-W", "error", "-c", LAUNCHER, tmp_path / "run", str(core)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("''\n", "")
    assert (tmp_path / "run" / "log.txt").read_text() == f"[{core}] one\n"


def test_a_child_is_killed_with_its_parent():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        while child.cmdline()[1:] != ["-c", "import time; time.sleep(99)"]:
            time.sleep(0.02)  # It has not become the command yet.
        parent.kill()
    assert psutil.wait_procs([child], timeout=60)[1] == []


def test_a_child_whose_parent_has_ended_does_not_begin():
    done = subprocess.run(processes.bound(["true"]), check=False)
    assert done.returncode == 0
    *program, parent, cores, _ = processes.bound(["true"])
    assert (int(parent), cores) == (os.getpid(), "")
    done = subprocess.run([*program, "1", cores, "true"], check=False)
    assert done.returncode == -9
