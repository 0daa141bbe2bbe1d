"""What a server counts, as text that Prometheus reads, and a line for each request."""

import bisect
import collections
import datetime
import sys
import time
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cbert.serving.batching import Batcher
from cbert.serving.limits import CLIENT_LEFT

CONTENT_TYPE = "text/plain; version=0.0.4"
BATCH = "batch"  # In the state of a request: the queries of the largest call it was part of.
REFUSED = "refused"  # There, too: the status of a refusal that came before the application's.
OTHER = "other"  # The path of all requests for what is no route, which may be any number.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # Seconds.
_MOST_CHARACTERS = 200


class Metrics:
    """The counts of one server, which its event loop alone changes.

    Args:
      models: From the name that requests give to the model.
      batcher: The queue, which has counts of its own.
    """

    def __init__(self, models: Mapping[str, Any], batcher: Batcher) -> None:
        self._models, self._batcher = models, batcher
        self._requests: collections.Counter[tuple[str, int]] = collections.Counter()
        self._seconds: dict[str, list[int]] = {}  # Requests by bucket, the last one unbounded.
        self._sums: dict[str, float] = collections.defaultdict(float)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Counts a request that has ended."""
        self._requests[path, status] += 1
        buckets = self._seconds.setdefault(path, [0] * (len(_BOUNDS) + 1))
        buckets[bisect.bisect_left(_BOUNDS, seconds)] += 1
        self._sums[path] += seconds

    def text(self) -> str:
        """All counts, in version 0.0.4 of Prometheus' text format."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _head("cbert_model", "gauge", "The models that are served.")
        for name, model in self._models.items():
            about = {"method": model.method, "task": model.task, "step": model.step}
            yield _sample("cbert_model", 1, model=name, **about)
        yield from _head("cbert_requests_total", "counter", "Requests by route and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield _sample("cbert_requests_total", count, path=path, status=status)
        name = "cbert_request_seconds"
        yield from _head(name, "histogram", "From a request's head to the end of its response.")
        for path, buckets in sorted(self._seconds.items()):
            below = 0
            for bound, count in zip((*_BOUNDS, "+Inf"), buckets, strict=True):
                below += count
                yield _sample(f"{name}_bucket", below, path=path, le=bound)
            yield _sample(f"{name}_sum", self._sums[path], path=path)
            yield _sample(f"{name}_count", below, path=path)
        batcher = self._batcher
        for name, kind, value, meaning in (
            ("queries_waiting", "gauge", batcher.waiting, "Queries in the queue."),
            ("queries_total", "counter", batcher.completed, "Queries that were computed."),
            (
                "queries_dropped_total",
                "counter",
                batcher.dropped,
                "Queries of clients that left.",
            ),
            ("calls_total", "counter", batcher.calls, "Calls that computed them, many in one."),
        ):
            yield from _head(f"cbert_{name}", kind, meaning)
            yield _sample(f"cbert_{name}", value)


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _sample(name: str, value: float, **labels: object) -> str:
    written = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"{name}{{{written}}} {value}" if labels else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Observer:
    """ASGI middleware, the outermost: it counts requests, and prints a line for each.

    Args:
      app: The application.
      metrics: What counts.
      routes: The paths that are counted each by itself.
      access_log: Whether to print.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, routes: Collection[str], access_log: bool
    ) -> None:
        self._app, self._metrics, self._routes = app, metrics, frozenset(routes)
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = CLIENT_LEFT, time.perf_counter()

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            status = scope.get("state", {}).get(REFUSED, status)
            seconds = time.perf_counter() - began
            self._metrics.count(self._route(scope["path"]), status, seconds)
            if self._access_log:
                print(_line(scope, status, seconds), file=sys.stderr, flush=True)

    def _route(self, path: str) -> str:
        if path in self._routes:
            return path
        return "/page" if path.startswith("/page/") else OTHER


def _line(scope: Scope, status: int, seconds: float) -> str:
    """Time, method, path without its query, status, milliseconds, and batch."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    path = urllib.parse.quote(scope["path"])[:_MOST_CHARACTERS]
    method = urllib.parse.quote(scope["method"])[:_MOST_CHARACTERS]
    batch = scope.get("state", {}).get(BATCH, "-")
    return f"{now} {method} {path} {status} {1000 * seconds:.1f} {batch}"
