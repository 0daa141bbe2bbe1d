"""HTTP on one connection: uvicorn's protocol, with limits on a client's time."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from cbert.serving import refusals
from cbert.serving.limits import Limits
from cbert.serving.metrics import REFUSED

# So many bytes are parsed at once, so that no client holds up the event loop.
_SLICE_BYTES = 4096
# For so long a server that ends still reads what clients had sent, but it had not read yet.
_LAST_READ_SECONDS = 0.5


def protocol_class(limits: Limits, headers: list[tuple[str, str]]) -> type[H11Protocol]:
    """The protocol with these limits; its own refusals bear these headers.

    Uvicorn waits for ever for the rest of a request's head and for a client that does not
    read, and refuses in plain text.
    """

    class Protocol(_Protocol):
        pass

    Protocol.limits, Protocol.refusal_headers = limits, headers
    return Protocol


class _Alarm:
    """Calls a function once after some time, unless it is cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        self._loop, self._function = loop, function
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Starts the clock unless it runs already."""
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, self._function)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Protocol(H11Protocol):
    limits: Limits
    refusal_headers: list[tuple[str, str]]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Then `pause_writing` is called whenever the client has not read all that was sent.
        transport.set_write_buffer_limits(high=0)
        self._slow_head = _Alarm(self.loop, transport.close)
        self._slow_reader = _Alarm(self.loop, self._abort)
        self._shutting_down = False
        if len(self.connections) > self.limits.connections:
            self.app = _refuse_connection
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _SLICE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + _SLICE_BYTES])
            if self._is_chunked():
                self._refuse(411, "the body comes in chunks; send it with Content-Length")
        if self._shutting_down:
            self._announce_the_end()
        self._watch_head()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._slow_head.cancel()
        self._slow_reader.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._slow_reader.start(1.0 if self._shutting_down else self.limits.write_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._slow_reader.cancel()

    def shutdown(self) -> None:
        """Ends the connection, once a request that has arrived whole is answered.

        It may have arrived and not been read yet, as what clients send without a pause is.
        """
        self._shutting_down = True
        self._announce_the_end()
        if self.flow.write_paused:
            self._slow_reader.cancel()
            self._slow_reader.start(1.0)
        else:
            self.loop.call_later(_LAST_READ_SECONDS, self._end)

    def _announce_the_end(self) -> None:
        """Lets the response to the request under way say that it is the last one."""
        if self._is_under_way():
            self.cycle.keep_alive = False
            if not self.cycle.response_started:
                own = (b"connection", b"close")
                others = [one for one in self.cycle.default_headers if one != own]
                self.cycle.default_headers = [*others, own]

    def _end(self) -> None:
        """Closes unless a request that has arrived whole is being answered."""
        if not self._is_under_way():
            self.conn.send(h11.ConnectionClosed())
            self.transport.close()
        elif self.cycle.more_body:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            400,
            "the request is not HTTP as RFC 9112 has it; a path has ASCII "
            "characters alone, others are percent-encoded",
        )

    def _abort(self) -> None:
        """Closes at once; with this option the kernel does not go on sending, either."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _is_under_way(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_chunked(self) -> bool:
        return self._is_under_way() and any(
            name == b"transfer-encoding" for name, _ in self.cycle.scope["headers"]
        )

    def _watch_head(self) -> None:
        """Starts the clock where no request is under way."""
        if self._is_under_way():
            self._slow_head.cancel()
        else:
            self._slow_head.start(self.limits.read_seconds)

    def _refuse(self, status: int, sentence: str) -> None:
        """Answers in place of the application, and closes."""
        if self._is_under_way():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            if self._is_under_way():
                self.cycle.scope["state"][REFUSED] = status
            body = json.dumps({"error": sentence}).encode()
            headers = [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
                *self.refusal_headers,
            ]
            response = h11.Response(status_code=status, headers=headers, reason=b"")
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


async def _refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    refusal = refusals.response(
        503, "too many connections are open; try again later", {"Connection": "close"}
    )
    await refusal(scope, receive, send)
