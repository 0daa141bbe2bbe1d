"""The server over real HTTP: its predictions, its refusals, its end."""

import concurrent.futures
import http.client
import json
import socket
import time
import urllib.parse

import numpy as np
import pytest

from cbert.errors import UserError
from cbert.inference.queries import Query
from cbert.serving import server
from cbert.serving.reading import Reader
from tests.conftest import refused
from tests.test_predict import assemble

HEAD = (
    b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
CONTEXT = {"age": 34.0, "occasion": "work", "colours": ["blue"]}


def ask(address, path, body=None, method=None, **headers):
    """The status and the parsed response; a body that is not bytes is sent as JSON."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=60)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    try:
        headers = {"Content-Type": "application/json"} | headers
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        response = connection.getresponse()
        text = response.read()
        assert {"nosniff", "no-cache"} <= set(response.headers.values())
        return response.status, json.loads(text)
    finally:
        connection.close()


def test_predictions_are_the_predictors(served, predictor):
    items = list(predictor.schema.items[:3])
    query = {"items": items, "context": CONTEXT}

    status, response = ask(served, "/complete", query | {"k": 80, "exclude": [items[0]]})
    assert status == 200
    wanted = predictor.complete(items, CONTEXT, k=80, exclude=[items[0]]).to_dict()
    (listed,), (expected,) = response.pop("predictions"), wanted.pop("predictions")
    assert len(listed) == 77
    assert response == wanted
    for one, other in zip(listed, expected, strict=True):
        assert one["rank"] == other["rank"]
        assert one["probability"] == pytest.approx(other["probability"], rel=1e-4)

    status, response = ask(served, "/score", query)
    assert status == 200
    wanted = predictor.score(items, CONTEXT).scores
    assert [score["rank"] for score in response["scores"]] == [score.rank for score in wanted]

    status, response = ask(served, "/explain", query | {"item": predictor.schema.items[5]})
    assert status == 200
    wanted = predictor.explain(items, CONTEXT, predictor.schema.items[5])
    assert response["features"] == pytest.approx(wanted.features, abs=1e-4)
    assert abs(response["features"]["age"]) > 1e-3

    status, response = ask(
        served, "/complete_batch", {"model": "compare", "queries": [query] * 3}
    )
    assert status == 200
    assert [len(one["predictions"][0]) for one in response["completions"]] == [5, 5, 5]


def test_concurrent_clients_get_their_own_predictions(served, schema):
    queries = [
        {"items": [name], "k": 3, "context": {"age": 20 + n}}
        for n, name in enumerate(schema.items)
    ]
    alone = [ask(served, "/complete", query)[1]["predictions"][0] for query in queries[:32]]
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        responses = list(pool.map(lambda query: ask(served, "/complete", query), queries[:32]))
    for (status, response), wanted in zip(responses, alone, strict=True):
        assert status == 200
        assert [one["item"] for one in response["predictions"][0]] == [
            one["item"] for one in wanted
        ]
        probabilities = [
            [one["probability"] for one in list_]
            for list_ in (response["predictions"][0], wanted)
        ]
        np.testing.assert_allclose(*probabilities, rtol=1e-4)
    assert len({json.dumps(wanted) for wanted in alone}) == 32


MISTAKES = {
    "not JSON": (b"{oops", "the body is not JSON"),
    "empty": (b"", "the body is missing"),
    "a number that is none": (
        b'{"items": [], "context": {"age": NaN}}', "neither NaN nor Infinity, so write null"
    ),
    "infinity": (b'{"items": [], "context": {"age": -1e999}}', "use a finite number"),
    "a long number": (b'{"items": [], "k": ' + b"9" * 5000 + b"}", "number out of range"),
    "deep": (b"[" * 20_000, "the body is not JSON: recursion limit"),
    "a low surrogate": (b'{"items": ["\\udc00"]}', "lone leading surrogate"),
    "half a surrogate": (b'{"items": ["\\ud800"]}', "end of hex escape"),
    "half a surrogate, raw": (b'{"items": ["\xed\xa0\x80"]}', "is not UTF-8: wrong byte at 12"),
    "latin 1": ('{"items": ["é"]}'.encode("latin-1"), "is not UTF-8: wrong byte at 12"),
    "UTF-16": ('{"items": []}'.encode("utf-16"), "is not UTF-8: wrong byte at 0"),
    "half a surrogate in UTF-16": (
        '{"items": ["\ud800"]}'.encode("utf-16-le", "surrogatepass"), "is not UTF-8: wrong byte"
    ),
    "a list": ([], "the body must be an object, not []"),
    "no items": ({}, "items is missing"),
    "items are text": ({"items": "shoe"}, 'items must be a list, not "shoe"'),
    "an item is a number": ({"items": [3]}, "items.0 must be a string, not 3"),
    "a repeated item": ({"items": ["a", "a"]}, "item 'a' occurs twice in a set"),
    "10 000 items": ({"items": [str(n) for n in range(10_000)]}, "items holds 10000"),
    "many values": (
        {"items": [], "context": {"tags": ["x"] * 10_001}},
        "context has 10,001 values; give at most 10,000 in all",
    ),
    "context is a list": ({"items": [], "context": []}, "context must be an object"),
    "a feature near another": ({"items": [], "context": {"agee": 3}}, "did you mean 'age'?"),
    "a value of another kind": ({"items": [], "context": {"age": "old"}}, "'age' is numerical"),
    "a nested value": ({"items": [], "context": {"age": {"a": 1}}}, "age"),
    "k is 0": ({"items": [], "k": 0}, "k is 0; it must be a whole number from 1 to 80"),
    "k is above the vocabulary": ({"items": [], "k": 81}, "k is 81"),
    "k is half": ({"items": [], "k": 1.5}, "k must be a whole number, not 1.5"),
    "k is true": ({"items": [], "k": True}, "k must be a whole number, not true"),
    "many slots": ({"items": [], "slots": 1000}, "slots is 1000"),
    "an unknown field": ({"items": [], "contxt": {}}, "contxt is not a field"),
    "a path for a model": ({"model": "../../x", "items": []}, "model must be 'main' or"),
    "only of nothing known": ({"items": [], "only": ["x"]}, "only names 'x', which is not"),
}  # fmt: skip


def test_every_mistake_is_one_sentence(served, schema):
    for name, (body, words) in MISTAKES.items():
        status, response = ask(served, "/complete", body)
        assert (status, list(response)) == (400, ["error"]), name
        assert words in response["error"], name
        assert "\n" not in response["error"]
        assert len(response["error"]) < 400
    many, bad = [{"items": []}] * 65, [{"items": []}, {"items": [], "k": 0}]
    long = [{"items": [], "context": {"tags": ["x"] * 4000}}] * 3
    for path, body, status, words in (
        ("/complete_batch", {"queries": many}, 400, "queries holds 65; give at most 64"),
        ("/complete_batch", {"queries": bad}, 400, "queries.1: k is 0"),
        ("/complete_batch", {"queries": long}, 400, "queries has 12,000 values; give at most"),
        ("/score", {"items": []}, 400, "items is empty"),
        ("/score", {"items": [None]}, 400, "items.0 must be a string"),
        ("/explain", {"items": [], "item": "x"}, 400, "item names 'x'"),
        ("/reading", {"items": []}, 400, "gsu, which has neither attention to the context"),
        ("/items?limit=none", None, 400, "limit must be a whole number"),
        ("/items?qurey=a", None, 400, "qurey is no parameter; /openapi.json"),
        ("/../../etc/passwd", None, 404, "there is nothing at"),
        ("/page/..%2f..%2fapp.py", None, 404, "there is nothing at"),
        ("/complete", None, 405, "/complete does not take GET"),
    ):  # fmt: skip
        actual_status, response = ask(served, path, body)
        assert actual_status == status, path
        assert words in response["error"]
    status, response = ask(served, "/complete", b"[" + b" " * 50_000_000 + b"]")
    assert (status, response) == (413, {"error": "the body is larger than 1,048,576 bytes"})
    assert ask(served, "/health")[1]["status"] == "ok"


def test_what_training_never_saw_is_named_not_refused(served):
    names = ["../../etc/passwd", "<b>hat</b>", "ключ", ""]
    body = {"items": names, "context": {"occasion": "coronation", "colours": []}, "k": 2}
    status, response = ask(served, "/complete", body)
    assert status == 200
    assert response["unknown_items"] == names
    assert response["unknown_context"] == {"occasion": ["coronation"]}
    assert "age" in response["missing_context"]
    assert "colours" not in response["missing_context"]
    status, response = ask(served, "/complete", {"items": []})
    assert status == 200
    assert len(response["predictions"][0]) == 5


def open_socket(address):
    parts = urllib.parse.urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def test_slow_clients_are_sent_away(served):
    with open_socket(served) as head, open_socket(served) as body:
        head.sendall(b"GET /health HT")
        body.sendall(HEAD % (b"/complete", 50) + b"{")
        refusal = body.makefile("rb").read()
        assert refusal.startswith(b"HTTP/1.1 408 ")
        assert b"the body did not arrive within 2 seconds" in refusal
        assert head.recv(10_000) == b""


def test_the_work_of_a_client_that_leaves_is_dropped(served, schema):
    """Batches are queued and left; not all of them are computed."""
    body = json.dumps(
        {"queries": [{"items": list(schema.items[:7]), "slots": 2}] * 64}
    ).encode()
    request = HEAD % (b"/complete_batch", len(body))
    before = ask(served, "/health")[1]
    sockets = [open_socket(served) for _ in range(16)]
    for one in sockets:
        one.sendall(request + body)
    for one in sockets:
        one.close()
    deadline = time.monotonic() + 60
    while ask(served, "/health")[1]["dropped"] == before["dropped"]:
        assert time.monotonic() < deadline
    assert ask(served, "/complete", {"items": []})[0] == 200


def test_the_page_data(served, schema):
    status, response = ask(served, "/schema")
    assert status == 200
    assert [model["model"] for model in response["models"]] == ["main", "compare"]
    assert (response["kind"], response["items"], response["max_items"]) == ("set", 80, 8)
    age = response["features"][0]
    assert age == {
        "name": "age",
        "kind": "numerical",
        "control": "slider",
        "low": 12,
        "high": 68,
        "step": 2,
        "middle": 40,
    }
    assert set(response["example"]["items"]) <= set(schema.items)
    assert len(set(response["example"]["items"])) == 5
    status, response = ask(served, "/items?query=BAG%20no.&limit=2")
    bags = [name for name in schema.items if " bag," in name]
    assert response["total"] == len(bags)
    assert len(response["items"]) == 2
    assert response["items"][0]["count"] >= response["items"][1]["count"]


def test_the_gate_of_a_set_is_read(schema):
    """Without weights, the gate is the sigmoid of its bias at every position."""
    predictor = assemble(schema, "late_gate", model__layers=1)
    gate = predictor.program.prepared["conditioning"]
    gate["gate_hidden"]["kernel"] = np.zeros((16, 16), np.float32)
    gate["gate_context"]["kernel"] = np.zeros((16, 16), np.float32)
    # The sigmoid of log 3 is 3/4, and that of -log 9 is 1/10.
    gate["gate_hidden"]["bias"] = np.repeat(np.log([3, 1 / 9]), [12, 4]).astype(np.float32)
    query = predictor.check(Query(list(schema.items[:2]), CONTEXT))
    reading = Reader(predictor).read(query)
    expected = 0.75 * 0.75 + 0.25 * 0.1
    assert (reading.what, reading.values) == ("gates", {"gate": pytest.approx(expected)})


def test_openapi_describes_every_route(served):
    status, document = ask(served, "/openapi.json")
    assert status == 200
    schemas = document["components"]["schemas"]
    bodies = {
        "/complete": ("CompleteBody", "Completion"),
        "/complete_batch": ("CompleteBatchBody", "Completions"),
        "/score": ("ScoreBody", "Scores"),
        "/explain": ("ExplainBody", "Explanation"),
        "/reading": ("ReadingBody", "Reading"),
        "/schema": (None, "Description"),
        "/items": (None, "Matches"),
        "/health": (None, "Health"),
    }
    assert set(document["paths"]) == {*bodies, "/metrics"}

    def reference(content):
        return content["application/json"]["schema"]["$ref"].rpartition("/")[2]

    for path, (request, response) in bodies.items():
        (route,) = document["paths"][path].values()
        assert reference(route["responses"]["200"]["content"]) == response
        assert reference(route["responses"]["4XX"]["content"]) == "Refusal"
        assert request in schemas if request else "requestBody" not in route
        if request:
            assert reference(route["requestBody"]["content"]) == request
            assert schemas[request]["additionalProperties"] is False
        fields = ask(served, path)[1] if not request else {}
        assert set(fields) <= set(schemas[response]["properties"])
    query = schemas["QueryBody"]["properties"]
    assert (query["k"]["minimum"], query["k"]["maximum"]) == (1, 128)
    batch = schemas["CompleteBatchBody"]["properties"]
    assert (batch["queries"]["maxItems"], batch["model"]["default"]) == (64, "main")
    assert schemas["QueryBody"]["required"] == ["items"]
    age = query["context"]["anyOf"][0]["additionalProperties"]["anyOf"]
    types = ["string", "number", "boolean", "null", "array", "array"]
    assert [value["type"] for value in age] == types


def test_a_port_in_use_and_a_missing_directory_are_one_line(served, trained, tmp_path):
    port = urllib.parse.urlsplit(served).port
    with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port} .*in use"):
        server.listen("127.0.0.1", port)
    with pytest.raises(UserError, match="host is 'no such host'"):
        server.listen("no such host", 0)
    error = refused("serve", f"--workdir={tmp_path}/none", "--port=0")
    assert "is not a run's work directory" in error
