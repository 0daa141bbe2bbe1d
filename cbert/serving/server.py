"""A socket, uvicorn on it, and an end without noise."""

import asyncio
import signal
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cbert.errors import UserError
from cbert.serving.limits import Limits

HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; raises `UserError` when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"--host is {host!r}: {error}; use an address of this machine"
        ) from None
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()
    except OSError as error:
        found.close()
        raise UserError(
            f"cannot listen on {host}:{port} ({error.strerror}); pass another --port or --host"
        ) from None
    return found


def address(listening: socket.socket) -> str:
    """Where to point a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Any, listening: socket.socket, limits: Limits) -> None:
    """Answers until SIGINT or SIGTERM; requests under way are answered first."""
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), {"head_seconds": limits.read_seconds}),
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        headers=HEADERS,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=max(1, round(limits.answer_seconds)),
    )
    # Uvicorn raises the signal once more when it has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listening])


class _Protocol(H11Protocol):
    """HTTP that closes a connection whose request does not begin in time.

    Uvicorn itself waits for ever for the rest of a request's head.
    """

    head_seconds: float

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._closing: asyncio.TimerHandle | None = None
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._unwatch()

    def _watch(self) -> None:
        """Starts the clock where no request is under way, unless it runs already."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._closing is None:
            self._closing = self.loop.call_later(self.head_seconds, self.transport.close)

    def _unwatch(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
