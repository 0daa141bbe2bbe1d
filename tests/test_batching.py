"""The line in front of a model: what waits, what shares a call, what is dropped."""

import asyncio
import threading

import pytest
from starlette.requests import Request

from cbert.serving.batching import Batcher, BusyError
from cbert.serving.limits import Limits, RefusalError
from cbert.serving.service import Service


class Gate:
    """Answers questions with their squares, once it is opened."""

    def __init__(self):
        self.open, self.entered = threading.Event(), threading.Event()
        self.calls = []

    def __call__(self, questions):
        self.entered.set()
        assert self.open.wait(20)
        self.calls.append(questions)
        return [question**2 for question in questions]


def test_questions_that_wait_share_a_call_and_dropped_ones_cost_nothing():
    batcher, gate = Batcher(max_batch=4, capacity=8), Gate()
    (first,) = batcher.submit(gate, [1])
    assert gate.entered.wait(20)
    several = batcher.submit(gate, [2, 3, 4])
    (alone,) = batcher.submit(abs_all, [-5])
    others = batcher.submit(gate, [6, 7, 8])
    assert batcher.waiting == 7
    with pytest.raises(BusyError):
        batcher.submit(gate, [9, 10])
    several[1].cancel()
    gate.open.set()
    assert [first.result(20), several[0].result(20), several[2].result(20)] == [1, 4, 16]
    assert alone.result(20) == 5
    assert [future.result(20) for future in others] == [36, 49, 64]
    batcher.close()
    assert gate.calls == [[1], [2, 4, 6], [7, 8]]
    assert (batcher.completed, batcher.dropped) == (7, 1)
    with pytest.raises(BusyError):
        batcher.submit(gate, [1])


def test_time_that_runs_out_and_askers_that_leave_drop_their_questions():
    batcher, gate = Batcher(), Gate()
    service = Service({}, batcher, Limits(response_seconds=0.2))

    async def stay():
        await asyncio.Event().wait()

    async def leave():
        return {"type": "http.disconnect"}

    (first,) = batcher.submit(gate, [1])
    assert gate.entered.wait(20)
    for receive, status in ((stay, 503), (leave, 499)):
        with pytest.raises(RefusalError) as refusal:
            asyncio.run(service.compute(Request({"type": "http"}, receive), gate, [status]))
        assert refusal.value.status_code == status
    (last,) = batcher.submit(gate, [3])
    gate.open.set()
    assert (first.result(20), last.result(20)) == (1, 9)
    batcher.close()
    assert gate.calls == [[1], [3]]


def abs_all(questions):
    return [abs(question) for question in questions]


def test_a_failure_is_its_askers_and_the_line_goes_on():
    batcher = Batcher()
    (bad,) = batcher.submit(abs_all, ["three"])
    assert isinstance(bad.exception(20), TypeError)
    (good,) = batcher.submit(abs_all, [-3])
    assert good.result(20) == 3
    batcher.close()
