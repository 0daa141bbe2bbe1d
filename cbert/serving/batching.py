"""One thread in front of the device: inputs that wait together are computed in one call."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

Compute = Callable[[list[Any]], Sequence[Any]]


class BusyError(Exception):
    """The queue is full."""


class Answer(Future):
    """The result of one input.

    Attributes:
      batch: The inputs of the call that computed it, 0 before that.
    """

    batch: int = 0


@dataclasses.dataclass(frozen=True)
class _Job:
    compute: Compute
    input: Any
    future: Answer


class Batcher:
    """Computes inputs in the order they come, on a thread of its own.

    The thread never waits for a batch to fill: other inputs arrive while the device is busy,
    and they are the next batch.

    Attributes:
      max_batch: The most inputs of one call.
      capacity: The most inputs that may wait.
      completed: How many inputs have been computed so far, failures included.
      dropped: How many inputs were cancelled before their turn.
      calls: How many calls have computed the others.
    """

    def __init__(self, max_batch: int = 32, capacity: int = 1024) -> None:
        self.max_batch, self.capacity = max_batch, capacity
        self.completed = self.dropped = self.calls = 0
        self._jobs: collections.deque[_Job] = collections.deque()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="device", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of inputs that wait for their turn."""
        return len(self._jobs)

    def submit(self, compute: Compute, inputs: Sequence[Any]) -> list[Answer]:
        """Queues inputs; one whose future is cancelled before its turn is dropped.

        Args:
          compute: Takes a list of inputs to as many results. Waiting inputs with an equal
            `compute` share a call, and its exception if it raises one.
          inputs: One or several, which are queued together or not at all.

        Raises:
          BusyError: the queue is full.
        """
        jobs = [_Job(compute, one, Answer()) for one in inputs]
        with self._changed:
            if self._closed or len(self._jobs) + len(jobs) > self.capacity:
                raise BusyError
            self._jobs.extend(jobs)
            self._changed.notify()
        return [job.future for job in jobs]

    def close(self) -> None:
        """Ends the thread after the call under way, and cancels the inputs that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        for job in self._jobs:
            job.future.cancel()

    def _work(self) -> None:
        while jobs := self._next():
            started = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            self.dropped += len(jobs) - len(started)
            if started:
                _compute(started)
                self.completed += len(started)
                self.calls += 1

    def _next(self) -> list[_Job]:
        """The first job that waits and those that can share its call; none once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if self._closed:
                return []
            compute = self._jobs[0].compute
            batch: list[_Job] = []
            left: collections.deque[_Job] = collections.deque()
            for job in self._jobs:
                fits = job.compute == compute and len(batch) < self.max_batch
                (batch if fits else left).append(job)
            self._jobs = left
            return batch


def _compute(jobs: list[_Job]) -> None:
    for job in jobs:
        job.future.batch = len(jobs)
    try:
        results = jobs[0].compute([job.input for job in jobs])
        for job, result in zip(jobs, results, strict=True):
            job.future.set_result(result)
    except Exception as error:
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)
