"""Running a sweep: finished runs are skipped, broken ones go on, a failure stops no other."""

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
class _Pace:
    """How fast a run is, once it takes steps: it may wait for room first, and it compiles.

    Attributes:
      last: The newest step, to begin with the one that the run had when it was started.
      first: The first new step, None before it.
      began, seen: The times, in seconds, at which this process saw `first` and `last`.
    """

    last: int
    first: int | None = None
    began: float = 0.0
    seen: float = 0.0

    def rate(self, step: int, now: float) -> float | None:
        """Steps per second from the first new one to the newest, None before it is known."""
        if step > self.last:
            self.last, self.seen = step, now
            if self.first is None:
                self.first, self.began = step, now
        if self.first is None or self.seen == self.began:
            return None
        return (self.last - self.first) / (self.seen - self.began)


class Sweep:
    """The jobs of a sweep, and their progress.

    Attributes:
      states: The state of each run, by its directory.
      failures: The jobs that failed, and why.
      failed_before: The jobs that an earlier sweep saw fail, which `run` runs again.
      interrupted: Whether a signal has ended `run`.
    """

    def __init__(
        self, todo: Sequence[Job], steps: int, split: str, importance: bool = False
    ) -> None:
        """Reads the state of every run.

        Args:
          todo: All jobs of the sweep, finished ones too.
          steps: The steps to train where a point does not override them.
          split: The split that the runs are evaluated on.
          importance: Whether their evaluations have the importance of features.
        """
        self._jobs, self._split, self._importance = todo, split, importance
        self.states = {
            path: State(point.name, states.WAITING, point.overrides.get(STEPS, steps))
            for job in todo
            for point, path in zip(job.points, job.paths, strict=True)
        }
        self._paces: dict[pathlib.Path, _Pace] = {}
        self.failures: list[tuple[Job, str]] = []
        self.failed_before: list[Job] = []
        self.interrupted = False
        for job in todo:
            if self._is_finished(job):
                self._set(job, states.FINISHED)
            elif jobs.failed_before(job):
                self._set(job, states.FAILED)
                self.failed_before.append(job)
            self._read(job)

    def table(self) -> str:
        """A line for each run that says how far it is."""
        return states.table(list(self.states.values()))

    def run(self, launcher: Launcher, show: Callable[[str], None]) -> None:
        """Starts jobs when there is room, follows each to its end, and stops the launcher."""
        waiting = [job for job in self._jobs if not self._is(job, states.FINISHED)]
        running: list[Job] = []
        for job in waiting:
            self._set(job, states.WAITING)
        try:
            while waiting or running:
                while waiting and launcher.start(waiting[0]):
                    running.append(waiting.pop(0))
                    self._start(running[-1])
                for job in list(running):
                    failure = launcher.poll(job)
                    self._read(job)
                    if failure is not None:
                        running.remove(job)
                        self._end(job, failure)
                show(self.table())
                if waiting or running:
                    time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            self.interrupted = True
            for job in running:
                self._set(job, states.STOPPED)
        finally:  # No job may be left behind if showing the table fails, for instance.
            launcher.stop()
            for job in running:  # They have saved or ended, and so are farther than was shown.
                if self._is_finished(job):
                    self._set(job, states.FINISHED)
                self._read(job)

    def finished(self) -> bool:
        """Returns whether every run is finished."""
        return all(state.phase == states.FINISHED for state in self.states.values())

    def ended(self) -> bool:
        """Returns whether no run is left to be made: each is finished or has failed.

        A sweep that was asked to stop has not ended, so that nothing goes on after it.
        """
        over = states.FINISHED, states.FAILED
        made = all(state.phase in over for state in self.states.values())
        return made and not self.interrupted

    def _set(self, job: Job, phase: str) -> None:
        for path in job.paths:
            self.states[path].phase = phase

    def _is(self, job: Job, phase: str) -> bool:
        return all(self.states[path].phase == phase for path in job.paths)

    def _is_finished(self, job: Job) -> bool:
        return all(states.is_finished(p, self._split, self._importance) for p in job.paths)

    def _start(self, job: Job) -> None:
        self._set(job, states.TRAINING)
        for path in job.paths:
            self._paces[path] = _Pace(states.progress(path)[0])

    def _read(self, job: Job) -> None:
        """Reads step, loss, rate and time left from the files that the runs write."""
        for path in job.paths:
            state = self.states[path]
            state.step, state.loss = states.progress(path)
            state.rate = state.left = None
            if state.phase in (states.TRAINING, states.EVALUATING):
                state.phase = states.TRAINING
                if workdir.finished(path):
                    state.phase = states.EVALUATING
                elif rate := self._paces[path].rate(state.step, time.monotonic()):
                    state.rate, state.left = rate, (state.steps - state.step) / rate

    def _end(self, job: Job, failure: str) -> None:
        if failure:
            self._set(job, states.FAILED)
            self.failures.append((job, failure))
            jobs.mark_failed(job, failure)
        else:
            self._set(job, states.FINISHED if self._is_finished(job) else states.STOPPED)


def described(failures: Sequence[tuple[Job, str]]) -> str:
    """Describes each failed job: its name, why it failed, and where its log is."""
    return "\n".join(
        f"{job.name} failed:\n"
        + "".join(f"  {line}\n" for line in failure.splitlines())
        + f"  its log is {job.log}"
        for job, failure in failures
    )
