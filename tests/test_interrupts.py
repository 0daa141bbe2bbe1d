"""Signals that reach a process while it starts, computes or waits; real ones."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cbert.sweep import jobs, launchers, points
from cbert.sweep.running import Sweep
from cbert.training import loop, workdir
from cbert.training.preemption import Stop
from experiments import job_commands
from tests.conftest import ROOT, small


class Late(Stop):
    """A signal arrives as soon as the loop has looked whether it has to save its first step."""

    looks = 0

    @property
    def requested(self):
        value, self.looks = self.asked, self.looks + 1
        if self.looks == 3:
            signal.raise_signal(signal.SIGTERM)
        return value

    @requested.setter
    def requested(self, value):
        self.asked = value


def test_the_last_step_is_saved_whenever_the_signal_comes(data_dir, tmp_path):
    taken = []
    config = small(data__dir=data_dir, train__checkpoint_every=6, train__eval_every=6)
    loop.train(
        config, tmp_path, loop.Callbacks(step=lambda event: taken.append(event.step)), Late()
    )
    assert len(taken) < config.train.steps
    assert workdir.checkpoint_steps(tmp_path / workdir.CHECKPOINTS) == taken[-1:]


def test_a_second_interrupt_ends_at_once_and_prints_nothing(capfd):
    with Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        stop.answer()
        time.sleep(0.2)  # The watching thread has seen the first one.
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == ""


@pytest.fixture
def ends_on_signals():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    job_commands.end_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_second_sigterm_leaves_the_runs_of_a_sweep_time_to_save(tmp_path, ends_on_signals):
    """A second Ctrl-C ends the sweep at once, as it does a run."""
    begun, saved = tmp_path / "begun", tmp_path / "saved"
    ends = f"trap '' TERM; sleep 1; touch {saved}; exit"
    saves = f'trap "{ends}" TERM; touch {begun}; while sleep 0.1; do :; done'
    made = [points.Point("gs-seed0", "gs", {points.SEED: 0})]
    todo = jobs.make(made, tmp_path, False, lambda *_: ("sh", "-c", saves), lambda _: ("true",))
    second = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))

    def stop(_):
        if begun.exists():
            second.start()
            signal.raise_signal(signal.SIGTERM)

    Sweep(todo, 10, "test").run(launchers.Local(1), stop)
    second.join()
    assert saved.exists()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_at_a_prompt_waits_in_place_of_ending_the_process():
    lines = (
        *("import signal, time", "from cbert.training import preemption"),
        *("preemption.SECONDS = 0.1", "with preemption.Stop() as stop:"),
        *("    signal.raise_signal(signal.SIGINT)", "    time.sleep(0.5)", "", ""),
        "print('alive', stop.interrupted)",
    )
    done = subprocess.run(
        [sys.executable, "-i"], input="\n".join(lines), cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "the run is saved and ends after what it computes now; interrupt again not to save it",
        "alive True",
    ]


# Python runs this file first. The process interrupts itself when it begins to import a library,
# with Python's own handler, which it lacks where a shell runs the tests in the background.
INTERRUPTS = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupts:
    def find_spec(self, name, *_):
        if name == "absl":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
"""


def test_an_interrupt_while_libraries_are_imported_prints_nothing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    done = subprocess.run(
        [sys.executable, "-m", "experiments.train"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", -signal.SIGINT)


FIRST = """
import os, signal, sys
sys.argv[0] = "cbert"
import experiments
print(os.getpid(), flush=True)
os.kill(1, signal.SIGTERM)
print("it goes on")
"""


def test_sigterm_ends_a_command_that_is_the_first_process_of_a_container():
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", FIRST]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "unshare: unshare failed" in done.stderr:
        pytest.skip("processes cannot be given numbers of their own here")
    assert (done.stdout, done.returncode) == ("1\n", 128 + signal.SIGTERM)
