"""Clients that read slowly or break the protocol, and foreign hosts, are sent away."""

import http.client
import json
import select
import signal
import socket
import time
import urllib.parse
from concurrent import futures

import pytest

from cbert.errors import UserError
from cbert.serving.guard import host_name
from tests.conftest import serving
from tests.test_serving import HEAD, ask, open_socket

JSON = {"Content-Type": "application/json"}


def stop_reading(address):
    """A client that requests 14 MB and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(5)
    parts = urllib.parse.urlsplit(address)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(b"GET /page/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
    return connection


def was_reset(connection, seconds):
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(seconds * 1000))


def test_clients_that_do_not_read_are_cut_off(served):
    clients = [stop_reading(served) for _ in range(4)]
    started = time.monotonic()
    assert [was_reset(client, 20) for client in clients] == [True] * 4
    assert 1.5 < time.monotonic() - started < 10
    for client in clients:
        client.close()


def test_the_server_ends_beside_clients_that_do_not_read(trained):
    with serving(f"--workdir={trained}") as (process, address):
        clients = [stop_reading(address) for _ in range(4)]
        clients.append(open_socket(address))  # One is idle, one does not finish its body.
        clients.append(open_socket(address))
        clients[-1].sendall(HEAD % (b"/complete", 50) + b"{")
        time.sleep(1)
        assert not any(was_reset(client, 0) for client in clients)
        started = time.monotonic()
        process.terminate()
        assert process.communicate(timeout=30) == ("ended\n", "")
        assert time.monotonic() - started < 10
        assert process.returncode == 0
        for client in clients:
            client.close()


def ask_without_end(address, answers):
    """Posts the same queries again on one connection, until a response says that it ends."""
    body = json.dumps({"queries": [{"items": [], "k": 1}] * 64})
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=20)
    while not answers or answers[-1] == (200, None):
        connection.request("POST", "/complete_batch", body, JSON)
        response = connection.getresponse()
        response.read()
        answers.append((response.status, response.getheader("connection")))


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGINT] * 3])
def test_a_server_that_ends_answers_what_has_arrived(trained, numbers):
    """Each of many busy clients gets its answer, and is told that it was the last one.

    At a second Ctrl-C uvicorn by itself would drop the requests, with a traceback for each.
    """
    answers = [[] for _ in range(12)]
    flags = (f"--workdir={trained}", "--response_seconds=120")
    # The server ends before the clients are waited for, whatever fails.
    with (
        futures.ThreadPoolExecutor(len(answers)) as clients,
        serving(*flags) as (process, address),
    ):
        jobs = [clients.submit(ask_without_end, address, own) for own in answers]
        while min(map(len, answers)) < 3:
            assert not any(job.done() for job in jobs), answers
            time.sleep(0.01)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.05)
        for job in jobs:
            job.result()
        assert [own[-1] for own in answers] == [(200, "close")] * len(answers)
        assert process.communicate(timeout=30) == ("ended\n", "")
        assert process.returncode == 0


def test_a_signal_ends_a_server_as_soon_as_it_says_that_it_serves(trained):
    """Uvicorn starts after that line, and takes no signals before."""
    with serving(f"--workdir={trained}") as (process, _):
        process.terminate()
        assert process.communicate(timeout=30) == ("ended\n", "")
        assert process.returncode == 0


def raw(address, request):
    """The status, the headers and the body of a request that is sent as it is."""
    with open_socket(address) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection, method=request.split(b" ")[0].decode())
        response.begin()
        return response.status, response.headers, response.read()


def test_protocol_errors_and_too_many_connections_are_refused_as_json(served):
    for request in (
        b"hello\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ):
        status, headers, body = raw(served, request)
        assert (status, headers["Content-Type"]) == (400, "application/json")
        assert json.loads(body)["error"].startswith("the request is not HTTP as RFC 9112 has")
        assert headers["X-Content-Type-Options"] == "nosniff"
    clients = [open_socket(served) for _ in range(512)]
    status, headers, body = raw(served, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert json.loads(body) == {"error": "too many connections are open; try again later"}
    for client in clients:
        client.close()
    deadline = time.monotonic() + 10
    while ask(served, "/health")[0] != 200:
        assert time.monotonic() < deadline


def test_lists_and_searches_of_other_lengths_are_refused(served):
    for path, body, words in (
        ("/complete", {"items": ["a"] * 10_001}, "items holds 10,001; give at most 10,000"),
        ("/complete_batch", {"queries": []}, "queries is empty; give at least 1"),
        ("/items?limit=0", None, 'limit must be greater than or equal to 1, not "0"'),
        ("/items?limit=101", None, 'limit must be less than or equal to 100, not "101"'),
        (f"/items?query={'a' * 201}", None, "query has 201 characters; give at most 200"),
        (
            "/score?model=compare",
            {"items": []},
            "'model' stands in the address; put it in the body",
        ),
    ):
        assert ask(served, path, body) == (400, {"error": words})
    assert ask(served, "/complete", {"items": [], "exclude": ["a"] * 50_000})[0] == 200
    assert len(ask(served, "/items")[1]["items"]) == 20


def test_head_is_answered(served):
    for path in ("/", "/schema", "/health", "/items", "/page/style.css", "/openapi.json"):
        status, headers, body = raw(
            served, b"HEAD %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode()
        )
        assert (status, body) == (200, b"")
        if path != "/health":
            whole = raw(served, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
            assert int(headers["Content-Length"]) == len(whole[2]) > 0
    assert raw(served, b"HEAD /complete HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 405


def test_foreign_hosts_origins_and_types_are_refused(served):
    port = urllib.parse.urlsplit(served).port
    body = {"items": []}
    own = (
        {},
        {"Host": "localhost"},
        {"Host": f"LOCALHOST:{port}"},
        {"Host": "[::1]"},
        {"Host": "localhost", "Origin": "http://localhost:80"},
        {"Host": "localhost", "Origin": "https://localhost"},
        {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"},
        {"Content-Type": "application/json; charset=utf-8"},
    )  # fmt: skip
    for headers in own:
        assert ask(served, "/complete", body, **headers)[0] == 200, headers
    foreign = (
        (403, {"Host": "evil.example"}),
        (403, {"Host": f"evil.example:{port}"}),
        (403, {"Host": ""}),
        (403, {"Host": "evil@localhost"}),
        (403, {"Host": "localhost/evil.example"}),
        (403, {"Host": "localhost:port"}),
        (403, {"Host": "0.0.0.0"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "http://localhost:3000"}),
        (403, {"Host": "localhost", "Origin": f"http://localhost:{port}"}),
        (403, {"Origin": f"http://127.0.0.1:{port}.evil.example"}),
        (403, {"Origin": f"ftp://127.0.0.1:{port}"}),
        (415, {"Content-Type": "text/plain"}),
        (415, {"Content-Type": "application/x-www-form-urlencoded"}),  # curl's default
        (415, {"Content-Type": ""}),
    )  # fmt: skip
    for status, headers in foreign:
        actual_status, response = ask(served, "/complete", body, **headers)
        assert (actual_status, list(response)) == (status, ["error"]), headers
    assert ask(served, "/health", Host="evil.example")[0] == 403
    for path in (b"/page", b"//evil.example/", b"/schema/", b"/page//evil.example"):
        status, headers, _ = raw(served, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        assert (status, headers["Location"]) == (404, None)


def test_hosts_that_are_allowed(served):
    """The server is started with `ALLOWED_HOSTS`."""
    for headers in (
        {"Host": "cbert.example"},
        {"Host": "other.example:8000", "Origin": "https://other.example"},
        {"Origin": "https://cbert.example"},
        {"Host": "localhost"},
    ):
        assert ask(served, "/health", **headers)[0] == 200, headers
    assert ask(served, "/health", Host="evil.example")[0] == 403
    assert ask(served, "/health", Origin="https://evil.example")[0] == 403
    for name in ("cbert.example:8000", "http://cbert.example", "cbert.example/a", "a@b"):
        with pytest.raises(UserError, match="without a port"):
            host_name(name)
    assert host_name("[FE80::1]") == "fe80::1"
