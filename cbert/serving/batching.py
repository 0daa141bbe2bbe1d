"""One thread in front of the device: questions that wait together are answered in one call."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

Answer = Callable[[list[Any]], list[Any]]


class BusyError(Exception):
    """Too many questions wait already."""


@dataclasses.dataclass(frozen=True)
class _Job:
    answer: Answer
    question: Any
    future: Future


class Batcher:
    """Answers questions in the order they come, on a thread of its own.

    The thread never waits for a batch to fill: while the device is busy others arrive, and
    they are the next batch.

    Attributes:
      most: The most questions of one call.
      capacity: The most questions that may wait.
      answered: Questions answered so far, or refused.
      dropped: Questions whose asker had left before their turn.
    """

    def __init__(self, most: int = 32, capacity: int = 1024) -> None:
        self.most, self.capacity = most, capacity
        self.answered = self.dropped = 0
        self._jobs: collections.deque[_Job] = collections.deque()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="device", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Questions that wait for their turn."""
        return len(self._jobs)

    def submit(self, answer: Answer, questions: Sequence[Any]) -> list[Future]:
        """Puts questions in line; a future that is cancelled before its turn is dropped.

        Args:
          answer: Takes a list of questions to as many answers. Questions that wait with an
            equal `answer` share a call, and its exception if it raises one.
          questions: One or several, which come in line together or not at all.

        Raises:
          BusyError: the line is full.
        """
        jobs = [_Job(answer, question, Future()) for question in questions]
        with self._changed:
            if self._closed or len(self._jobs) + len(jobs) > self.capacity:
                raise BusyError
            self._jobs.extend(jobs)
            self._changed.notify()
        return [job.future for job in jobs]

    def close(self) -> None:
        """Ends the thread after the call under way; what still waits is cancelled."""
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
                _answer(started)
                self.answered += len(started)

    def _next(self) -> list[_Job]:
        """The first that waits and those that can share its call; none once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if self._closed:
                return []
            answer = self._jobs[0].answer
            taken, left = [], collections.deque()
            for job in self._jobs:
                fits = job.answer == answer and len(taken) < self.most
                (taken if fits else left).append(job)
            self._jobs = left
            return taken


def _answer(jobs: list[_Job]) -> None:
    try:
        answers = jobs[0].answer([job.question for job in jobs])
        for job, found in zip(jobs, answers, strict=True):
            job.future.set_result(found)
    except Exception as error:
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)
