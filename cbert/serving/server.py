"""Listens on a socket and runs uvicorn on it until a signal."""

import gc
import signal
import socket
import types

import uvicorn
from starlette.types import ASGIApp

from cbert.errors import UserError
from cbert.serving.limits import Limits
from cbert.serving.protocol import protocol_class

HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    # Or browsers would show the page of an earlier version for days, without a request.
    ("Cache-Control", "no-cache"),
]


class _Server(uvicorn.Server):
    """Takes a second Ctrl-C as the first; uvicorn would drop all requests, with tracebacks."""

    def handle_exit(self, sig: int, frame: types.FrameType | None) -> None:
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; raises `UserError` when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"host is {host!r}: {error}; use an address of this machine") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        raise UserError(
            f"cannot listen on {host}:{port} ({error.strerror}); use port=0 for a free one, or "
            "another host"
        ) from None
    return listening


def address(listening: socket.socket) -> str:
    """The address for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: ASGIApp, listening: socket.socket, limits: Limits, greeting: str = "") -> None:
    """Answers until SIGINT or SIGTERM; whole requests under way are answered first.

    Args:
      app: The application.
      listening: The socket.
      limits: The limits of a request.
      greeting: A line to print as soon as a signal ends the server.
    """
    config = uvicorn.Config(
        app,
        http=protocol_class(limits, HEADERS),
        ws="none",
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        headers=HEADERS,
        timeout_graceful_shutdown=max(1, round(limits.shutdown_seconds)),
    )
    server = _Server(config)
    # Uvicorn has handlers of its own only while it runs: a signal that comes before ends it as
    # soon as it has started, and one that comes after changes nothing.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    if greeting:
        print(greeting, flush=True)
    # Collecting garbage among all that JAX has imported would take a tenth of a second.
    gc.collect()
    gc.freeze()
    server.run(sockets=[listening])
