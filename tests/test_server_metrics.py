"""What a server counts, and its line for each request, over real HTTP."""

import http.client
import json
import re
import urllib.parse

import pytest

from tests.conftest import serving

SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)+)\})? (\S+)')


def request(address, path, body=None, method=None, **headers):
    """The status, and the text of the response."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=60)
    headers = {"Content-Type": "application/json"} | headers
    sent = None if body is None else json.dumps(body)
    connection.request(method or ("POST" if sent else "GET"), path, sent, headers)
    response = connection.getresponse()
    try:
        return response.status, response.read().decode()
    finally:
        connection.close()


def samples(text):
    """The samples of Prometheus' text format: name and labels to value."""
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    found = {}
    for name, labels, value in (SAMPLE.fullmatch(line).groups() for line in lines):
        found[(name, *re.findall(r'\w+="([^"]*)"', labels or ""))] = float(value)
    assert len(found) == len(lines)
    return found


@pytest.fixture(scope="module")
def observed(trained):
    """What `/metrics` says after some requests, and once more, and what the server logs."""
    query = {"items": [], "k": 2}
    flags = (f"--workdir={trained}", "--access_log", "--response_seconds=120")
    with serving(*flags) as (process, address):
        statuses = [
            request(address, "/page/style.css")[0],
            request(address, "/complete", query)[0],
            request(address, "/complete_batch", {"queries": [query] * 3})[0],
            request(address, "/complete", {"k": 0})[0],
            request(address, "/schema", method="HEAD")[0],
            request(address, "/nothing%0A/of%20that?name=secret")[0],
            request(address, "/health", Host="elsewhere.example")[0],
        ]
        assert statuses == [200, 200, 200, 400, 200, 404, 403]
        chunked = {"Transfer-Encoding": "chunked"}
        assert request(address, "/score", 0, **chunked)[0] == 411  # 0 begins a last chunk.
        _, refused = request(address, "/health", Host="elsewhere.example")
        assert "start the server with --allowed_hosts=NAME" in refused
        status, text = request(address, "/metrics")
        assert status == 200
        _, again = request(address, "/metrics")
        assert request(address, "/openapi.json")[0] == 200
        process.terminate()
        _, log = process.communicate(timeout=60)
    return samples(text), samples(again), log


def test_requests_are_counted(trained, observed):
    found, again, _ = observed
    assert {
        key[1:]: value for key, value in found.items() if key[0] == "cbert_requests_total"
    } == {
        ("/complete", "200"): 1,
        ("/complete", "400"): 1,
        ("/complete_batch", "200"): 1,
        ("/health", "403"): 2,
        ("/page", "200"): 1,
        ("/score", "411"): 1,
        ("/schema", "200"): 1,
        ("other", "404"): 1,
    }
    step = str(json.loads((trained / "finished.json").read_text())["best_step"])
    assert found["cbert_model", "main", "gsu", "masked_item", step] == 1
    assert found["cbert_queries_total",] == 4
    assert found["cbert_calls_total",] == 2
    assert found["cbert_queries_waiting",] == found["cbert_queries_dropped_total",] == 0
    buckets = {
        key[2]: value
        for key, value in found.items()
        if key[:2] == ("cbert_request_seconds_bucket", "/complete")
    }
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets["+Inf"] == found["cbert_request_seconds_count", "/complete"] == 2
    total = found["cbert_request_seconds_sum", "/complete"]
    bounds = [float(bound) for bound, below in buckets.items() if below == 2]
    assert 0 < total <= 2 * bounds[0]
    assert again["cbert_requests_total", "/metrics", "200"] == 1


def test_requests_are_logged(observed):
    found, _, log = observed
    total = found["cbert_request_seconds_sum", "/complete"]
    lines = [line.split() for line in log.splitlines()]
    told = {tuple(line[1:4]): line[4:] for line in lines}  # A file may end after a later one.
    assert told.keys() == {
        ("GET", "/page/style.css", "200"),
        ("POST", "/score", "411"),
        ("POST", "/complete", "200"),
        ("POST", "/complete_batch", "200"),
        ("POST", "/complete", "400"),
        ("HEAD", "/schema", "200"),
        ("GET", "/nothing%0A/of%20that", "404"),
        ("GET", "/health", "403"),
        ("GET", "/metrics", "200"),
        ("GET", "/openapi.json", "200"),
    }
    assert len(lines) == 12
    batches = {key[1:]: batch for key, (_, batch) in told.items() if batch != "-"}
    assert batches == {("/complete", "200"): "1", ("/complete_batch", "200"): "3"}
    milliseconds = [float(told["POST", "/complete", status][0]) for status in ("200", "400")]
    assert sum(milliseconds) == pytest.approx(1000 * total, abs=0.2)
    assert all(
        re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:]{8}\.\d{3}\+00:00", line[0]) for line in lines
    )
