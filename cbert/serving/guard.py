"""Stands before the application: refuses foreign hosts and origins, slow and large bodies."""

import asyncio
import urllib.parse

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cbert.errors import UserError
from cbert.serving import refusals
from cbert.serving.limits import CLIENT_LEFT, Limits, RefusalError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Seconds to read on after a body that is too large, so that its sender sees the refusal.
_DRAIN_SECONDS = 1.0
_PORTS = {"http": 80, "https": 443}


def host_name(text: str) -> str:
    """A host as an address names it; raises `UserError` where it has a port or a path."""
    name = text.strip("[]").lower()
    if "*" in name or " " in name:
        raise UserError(
            f"allowed_hosts names {text!r:.60}; give allowed_hosts=NAME,NAME without wildcards"
        )
    parts = _split(f"//[{name}]" if ":" in name else f"//{name}")
    if not name or parts is None or parts.hostname != name:
        raise UserError(
            f"allowed_hosts names {text!r:.60}; give allowed_hosts=NAME,NAME, without a port"
        )
    return name


class Guard:
    """ASGI middleware; the application sees only whole requests that it may answer.

    Args:
      app: The application.
      limits: The limits of a request.
      listening_host: The name or address given to listen on; it is allowed beside loopback.
      allowed_hosts: More names by which the server may be addressed, and from whose pages.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        listening_host: str = LOOPBACK[0],
        allowed_hosts: tuple[str, ...] = (),
    ) -> None:
        self._app, self._limits = app, limits
        self._named = set(map(host_name, allowed_hosts))
        self._hosts = {*LOOPBACK, listening_host.lower(), *self._named}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_headers(scope["method"], Headers(scope=scope))
            body = await self._read(receive)
        except HTTPException as error:
            if error.status_code != CLIENT_LEFT:
                refusal = refusals.response(error.status_code, error.detail, error.headers)
                await refusal(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # Uvicorn sends the headers alone.
            scope = {**scope, "method": "GET"}
        await self._app(scope, _replay(body, receive), send)

    def _check_headers(self, method: str, headers: Headers) -> None:
        host = _split(f"//{headers.get('host', '')}")
        if host is None or host.hostname not in self._hosts:
            raise RefusalError(
                403,
                f"host {headers.get('host', '')[:80]!r} is not served; start the server with "
                "allowed_hosts=NAME",
            )
        if "origin" in headers and not self._is_own(headers["origin"], host):
            raise RefusalError(
                403,
                f"pages of {headers['origin'][:80]!r} may not use this server; call it from a "
                "program, or from a page of its own",
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            raise RefusalError(
                415,
                f"the body's type is {kind[:80]!r}; send Content-Type: application/json",
            )

    def _is_own(self, text: str, host: urllib.parse.SplitResult) -> bool:
        """Returns whether an origin is this server under the host named, or an allowed host."""
        origin = _split(text)
        if origin is None or origin.scheme not in _PORTS:
            return False
        standard = _PORTS[origin.scheme]
        ports = origin.port or standard, host.port or standard
        same = origin.hostname == host.hostname and ports[0] == ports[1]
        return same or origin.hostname in self._named

    async def _read(self, receive: Receive) -> bytes:
        """The whole body of a request; raises `RefusalError`."""
        body, limits = bytearray(), self._limits
        try:
            async with asyncio.timeout(limits.read_seconds):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > limits.body_bytes:
                        break
                    if not message.get("more_body"):
                        return bytes(body)
                else:
                    raise RefusalError(CLIENT_LEFT, "the client left")
        except TimeoutError:
            raise RefusalError(
                408, f"the body did not arrive within {limits.read_seconds:g} seconds"
            ) from None
        await _drain(receive)
        raise RefusalError(413, f"the body is larger than {limits.body_bytes:,} bytes")


async def _drain(receive: Receive) -> None:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while (await receive()).get("more_body"):
                pass
    except TimeoutError:
        pass


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the application a body that has been read; then tells it when the client leaves."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def _split(address: str) -> urllib.parse.SplitResult | None:
    """The parts of `scheme://host:port` or `//host:port`, None where it is malformed."""
    try:
        parts = urllib.parse.urlsplit(address)
        _ = parts.port  # Raises where it is no number.
    except ValueError:
        return None
    whole = f"{parts.scheme}:" if parts.scheme else ""
    return parts if f"{whole}//{parts.netloc}" == address and "@" not in address else None
