"""The queue in front of a model: inputs that wait, share a call, or are dropped."""

import asyncio
import threading

import pytest
from starlette.requests import Request

from cbert.serving.batching import Batcher, BusyError
from cbert.serving.limits import Limits, RefusalError
from cbert.serving.service import Service


class Gate:
    """Computes the squares of its inputs, but waits until it is opened."""

    def __init__(self):
        self.open, self.entered = threading.Event(), threading.Event()
        self.calls = []

    def __call__(self, inputs):
        self.entered.set()
        assert self.open.wait(20)
        self.calls.append(inputs)
        return [number**2 for number in inputs]


def test_inputs_that_wait_share_a_call_and_dropped_ones_cost_nothing():
    batcher, gate = Batcher(max_batch=4, capacity=8), Gate()
    (first,) = batcher.submit(gate, [1])
    assert gate.entered.wait(20)
    several = batcher.submit(gate, [2, 3, 4])
    (alone,) = batcher.submit(abs_all, [-5])
    others = batcher.submit(gate, [6, 7, 8])
    assert batcher.waiting == 7
    with pytest.raises(BusyError):
        batcher.submit(gate, [9, 10])
    (last,) = batcher.submit(gate, [9])
    several[1].cancel()
    gate.open.set()
    assert [first.result(20), several[0].result(20), several[2].result(20)] == [1, 4, 16]
    assert alone.result(20) == 5
    assert [future.result(20) for future in (*others, last)] == [36, 49, 64, 81]
    batcher.close()
    assert gate.calls == [[1], [2, 4, 6], [7, 8, 9]]
    assert (batcher.completed, batcher.dropped) == (8, 1)
    with pytest.raises(BusyError):
        batcher.submit(gate, [1])


def test_inputs_of_clients_that_leave_or_time_out_are_dropped():
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


def abs_all(inputs):
    return [abs(number) for number in inputs]


def test_a_failure_is_returned_and_the_queue_goes_on():
    batcher = Batcher()
    (bad,) = batcher.submit(abs_all, ["three"])
    assert isinstance(bad.exception(20), TypeError)
    (good,) = batcher.submit(abs_all, [-3])
    assert good.result(20) == 3
    batcher.close()


def test_a_request_that_is_cancelled_when_the_server_ends_is_refused():
    """Uvicorn cancels what still waits seven seconds after the signal."""
    batcher, gate = Batcher(), Gate()
    service = Service({}, batcher, Limits())

    async def stay():
        await asyncio.Event().wait()

    async def cancelled():
        task = asyncio.create_task(service.compute(Request({"type": "http"}, stay), gate, [1]))
        await asyncio.to_thread(gate.entered.wait, 20)
        task.cancel()
        await task

    with pytest.raises(RefusalError, match="the server ends; try again later") as refusal:
        asyncio.run(cancelled())
    assert refusal.value.status_code == 503
    gate.open.set()
    batcher.close()
