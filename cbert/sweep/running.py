"""Running a sweep: what is finished is skipped, what was killed goes on, one failure is one."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Sequence

from cbert.sweep import jobs, states
from cbert.sweep.jobs import Job
from cbert.sweep.launchers import Launcher
from cbert.sweep.points import STEPS
from cbert.sweep.states import State
from cbert.training import workdir

POLL_SECONDS = 1.0


@dataclasses.dataclass
class _Started:
    time: float
    step: int


class Sweep:
    """The jobs of a sweep and how far they are."""

    def __init__(self, todo: Sequence[Job], steps: int, split: str) -> None:
        """`steps` are those of points that do not override them."""
        self._jobs, self._split = todo, split
        self.states = {
            path: State(point.name, states.WAITING, point.overrides.get(STEPS, steps))
            for job in todo
            for point, path in zip(job.points, job.paths, strict=True)
        }
        self._started: dict[pathlib.Path, _Started] = {}
        self.failed: list[Job] = []
        for job in todo:
            if all(states.is_finished(path, split) for path in job.paths):
                self._set(job, states.FINISHED)
                self._read(job)

    def table(self) -> str:
        """How far every run is."""
        return states.table(list(self.states.values()))

    def run(self, launcher: Launcher, show: Callable[[str], None]) -> None:
        """Starts jobs as there is room, and follows them to their ends."""
        waiting = [job for job in self._jobs if not self._is(job, states.FINISHED)]
        running: list[Job] = []
        try:
            while waiting or running:
                while waiting and launcher.start(waiting[0]):
                    running.append(waiting.pop(0))
                    self._start(running[-1])
                for job in list(running):
                    code = launcher.poll(job)
                    self._read(job)
                    if code is not None:
                        running.remove(job)
                        self._end(job, code)
                show(self.table())
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            for job in running:
                self._set(job, states.STOPPED)
        finally:  # Also where the table cannot be shown, or anything else is wrong.
            if running:
                launcher.stop()

    def finished(self) -> bool:
        """Whether every run is."""
        return all(state.phase == states.FINISHED for state in self.states.values())

    def _set(self, job: Job, phase: str) -> None:
        for path in job.paths:
            self.states[path].phase = phase

    def _is(self, job: Job, phase: str) -> bool:
        return all(self.states[path].phase == phase for path in job.paths)

    def _start(self, job: Job) -> None:
        self._set(job, states.TRAINING)
        for path in job.paths:
            self._started[path] = _Started(time.monotonic(), states.progress(path)[0])

    def _read(self, job: Job) -> None:
        """Step, loss, rate and time left, from what the runs have written."""
        for path in job.paths:
            state = self.states[path]
            state.step, state.loss = states.progress(path)
            state.rate = state.left = None
            if state.phase in (states.TRAINING, states.EVALUATING):
                began = self._started[path]
                state.phase = states.TRAINING
                if workdir.finished(path):
                    state.phase = states.EVALUATING
                elif state.step > began.step:
                    state.rate = (state.step - began.step) / (time.monotonic() - began.time)
                    state.left = (state.steps - state.step) / state.rate

    def _end(self, job: Job, code: int) -> None:
        done = all(states.is_finished(path, self._split) for path in job.paths)
        if code:
            self._set(job, states.FAILED)
            self.failed.append(job)
        else:
            self._set(job, states.FINISHED if done else states.STOPPED)


def failures(failed: Sequence[Job]) -> str:
    """The ends of the logs of what failed."""
    return "\n".join(
        f"{job.name} failed; the end of {job.log}:\n"
        + "\n".join(f"  {line}" for line in jobs.tail(job.log).splitlines())
        for job in failed
    )
