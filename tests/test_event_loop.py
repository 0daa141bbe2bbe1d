"""No request holds the server's event loop, however hostile."""

import asyncio
import concurrent.futures
import http.client
import json
import multiprocessing
import socket
import string
import time
import urllib.parse

import pytest
from starlette.requests import Request

from cbert.inference.queries import Query
from cbert.schema import SET, Schema
from cbert.serving import app, item_routes, messages, server
from cbert.serving.batching import Batcher
from cbert.serving.guard import Guard
from cbert.serving.limits import Limits, RefusalError
from cbert.serving.metrics import Metrics
from cbert.serving.service import Service
from tests.test_predict import assemble
from tests.test_serving import HEAD, ask, open_socket

MIB = 2**20
HELD_SECONDS = 0.05


def fill(begin, element, end):
    """A body of almost 1 MiB that repeats an element."""
    return begin + element * ((MIB - len(begin + end)) // len(element)) + end


def keys(begin, value, end):
    """A body of almost 1 MiB with as many keys as fit."""
    count = (MIB - len(begin + end)) // len(b'"12345":,' + value)
    return begin + b",".join(b'"%05x":%s' % (n, value) for n in range(count)) + end


HOSTILE = {
    "numbers": fill(b'{"items":[', b"1,", b"1]}"),
    "lists": fill(b'{"items":[', b"[],", b"1]}"),
    "full lists": fill(b'{"items":[', b"[1],", b"1]}"),
    "objects": fill(b'{"items":[', b"{},", b"1]}"),
    "fields": keys(b'{"items":[],', b"1", b"}"),
    "features": keys(b'{"items":[],"context":{', b"1", b"}}"),
    "values": keys(b'{"items":[],"context":{', b"{}", b"}}"),
    "a vector": fill(b'{"items":[],"context":{"age":[', b"1,", b"1]}}"),
    "nested values": fill(b'{"items":[],"context":{"age":[', b"[1],", b"1]}}"),
    "exclude": fill(b'{"items":[],"exclude":[', b'"a",', b'"a"]}'),
    "queries": fill(b'{"queries":[', b'{"items":[]},', b"1]}"),
    "depth": b"[" * MIB,
    "a long name": fill(b'{"items":["', b"a", b'"]}'),
    "a long feature": fill(b'{"items":[],"context":{"', b"a", b'":1}}'),
    "a long number": fill(b'{"items":[],"k":', b"9", b"}"),
    "escapes": fill(b'{"items":["', b"\\u00e9", b'"]}'),
    # As many values as a body may hold.
    "99 000 numbers": b'{"items":[' + b"1," * 99_000 + b"1]}",
    "19 000 full lists": b'{"items":[' + b"[1]," * 19_000 + b"1]}",
    "19 000 fields": b'{"items":[],' + b",".join(b'"%x":1' % n for n in range(19_000)) + b"}",
    "9 000 values": b'{"items":[],"context":{'
    + b",".join(b'"%x":[]' % n for n in range(9_000))
    + b"}}",
}  # fmt: skip


def longest_wait(address, bodies, path="/complete"):
    """The slowest response of /health, in seconds, while the bodies are under way.

    Twice what a sleep of this process is late in the meantime is not counted, because a machine
    that is busy with other things lets everything wait.
    """
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=60)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    longest = late = 0.0
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        pending = [pool.submit(ask, address, path, body) for body in bodies]
        while not all(future.done() for future in pending):
            started = time.perf_counter()
            connection.request("GET", "/health")
            assert connection.getresponse().read()
            answered = time.perf_counter()
            time.sleep(0.001)
            longest = max(longest, answered - started)
            late = max(late, time.perf_counter() - answered - 0.001)
    connection.close()
    return longest - 2 * late, [future.result() for future in pending]


def assert_never_held(address, bodies, path="/complete", rounds=10):
    """The machine may be busy with other things, but not in every round."""
    waits = []
    for _ in range(rounds):
        wait, responses = longest_wait(address, bodies, path)
        waits.append(wait)
        if wait < HELD_SECONDS:
            return responses
    pytest.fail(f"/health took {min(waits):.3f} s in the best of {rounds} rounds")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_body_holds_the_event_loop(served, name):
    for status, response in assert_never_held(served, [HOSTILE[name]] * 6):
        assert (status, list(response)) == (400, ["error"])


def test_no_batch_holds_the_event_loop(served, schema):
    """The request holds the most queries, predictions and excluded names."""
    names = [{"items": [name], "k": 70} for name in schema.items[:64]]
    for status, response in assert_never_held(served, [{"queries": names}], "/complete_batch"):
        assert status == 200
        assert [len(one["predictions"][0]) for one in response["completions"]] == [70] * 64
    unseen = {"colours": [f"x{n}" for n in range(messages.MAX_VALUES)]}
    for status, response in assert_never_held(served, [{"items": [], "context": unseen}] * 6):
        assert status == 200
        assert len(response["unknown_context"]["colours"]) == messages.MAX_VALUES
    exclude = list(schema.items[:9]) * 2000
    for status, response in assert_never_held(served, [{"items": [], "exclude": exclude}]):
        assert status == 200
        assert len(response["predictions"][0]) == 5
    many = [{"items": [], "k": 80, "slots": 2}] * 52
    status, response = ask(served, "/complete_batch", {"queries": many})
    assert (status, list(response)) == (400, ["error"])
    assert "make 8,320 predictions; one request takes at most 8,192" in response["error"]


def test_responses_that_name_very_long_items_are_refused(predictor):
    """Five items of 28 to 50 characters exceed a limit of 100 characters."""
    service = Service({"main": predictor}, Batcher(), Limits(response_characters=100))

    async def stay():
        await asyncio.Event().wait()

    def complete(k):
        request = Request({"type": "http"}, stay)
        return asyncio.run(item_routes.complete(service, request, "main", [Query([], k=k)]))

    assert len(complete(1)[0].predictions[0]) == 1
    with pytest.raises(RefusalError, match=r"would name items of [12][0-9][0-9] characters"):
        complete(5)
    service.batcher.close()


def test_bodies_in_chunks_are_refused_at_once(served):
    """A chunk of one byte costs the server as much as one of 64 KiB."""
    head = HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") % b"/complete"

    def send():
        with open_socket(served) as connection:
            connection.sendall(head + b"1\r\n1\r\n" * 40_000)
            return connection.makefile("rb").read()

    waits = []
    for _ in range(5):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            pending = [pool.submit(send) for _ in range(3)]
            waits.append(longest_wait(served, [{"items": []}])[0])
            for future in pending:
                try:
                    response = future.result()
                except ConnectionError:  # The refusal came before all was sent.
                    continue
                assert response.startswith(b"HTTP/1.1 411 ")
                assert json.loads(response.partition(b"\r\n\r\n")[2])["error"].startswith(
                    "the body comes in chunks"
                )
    assert min(waits) < HELD_SECONDS


def serve_many_names(addresses):
    """Runs, in its own process, a server of 400 000 items whose names hold all letters."""
    names = tuple(f"{string.ascii_lowercase} {n}" for n in range(400_000))
    schema = Schema(SET, 4, names, (1,) * len(names), ())
    listening = server.listen("127.0.0.1", 0)
    addresses.put(server.address(listening))
    models, batcher = {"main": assemble(schema, "none")}, Batcher()
    application = app.make_app(models, batcher, Limits(), Metrics(models, batcher))
    server.serve(Guard(application, Limits()), listening, Limits())


def test_no_search_holds_the_event_loop():
    context = multiprocessing.get_context("spawn")
    addresses = context.Queue()
    process = context.Process(target=serve_many_names, args=(addresses,))
    process.start()
    try:
        address = addresses.get(timeout=60)
        words = "+".join(string.ascii_lowercase[:16])
        for query in ("", "a", "zyx", words, words.replace("+", "") + "+7", "399999"):
            for status, response in assert_never_held(
                address, [None] * 3, f"/items?query={query}"
            ):
                assert status == 200
                assert len(response["items"]) == min(20, response["total"])
        assert response["total"] == 1
        letters = urllib.parse.quote(" ".join(string.printable[:95]))
        status, response = ask(address, f"/items?query={letters}")
        assert (status, list(response)) == (400, ["error"])
        assert "words; give at most 16" in response["error"]
    finally:
        process.kill()
        process.join()
