"""Reads JSON bodies off the event loop."""

from collections.abc import Callable, Coroutine
from typing import Any

import pydantic_core
from fastapi import Request, Response
from fastapi.routing import APIRoute

from cbert.errors import shown
from cbert.serving import worker
from cbert.serving.limits import Limits, RefusalError


def route_class(limits: Limits) -> type[APIRoute]:
    """Routes whose bodies are parsed strictly, within the limits, by the worker thread.

    FastAPI parses on the event loop, and takes NaN and half surrogates; it validates what this
    has parsed.
    """

    class StrictRequest(Request):
        async def json(self) -> Any:
            return await worker.run(parse, await self.body(), limits)

    class StrictRoute(APIRoute):
        def get_route_handler(
            self,
        ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def handle(request: Request) -> Response:
                if request.method == "POST" and request.query_params:
                    name = shown(next(iter(request.query_params)))
                    raise RefusalError(400, f"{name} stands in the address; put it in the body")
                return await handler(StrictRequest(request.scope, request.receive))

            return handle

    return StrictRoute


def parse(body: bytes, limits: Limits) -> Any:
    """Parses strict JSON in UTF-8, without NaN or half surrogates; raises `RefusalError`.

    Its values are counted first: the parser holds the whole process while it makes objects of
    them, for seconds if 1 MiB is all `[],[],`.
    """
    for most, marks in ((limits.body_commas, b","), (limits.body_fields, b":[{")):
        count = sum(body.count(mark) for mark in marks)
        if count > most:
            named = " and ".join(repr(chr(mark)) for mark in marks)
            raise RefusalError(400, f"the body holds {count:,} {named}; give at most {most:,}")
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusalError(
            400, f"the body is not UTF-8: wrong byte at {error.start}; send JSON in UTF-8"
        ) from None
    try:
        return pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        advice = "; JSON has neither NaN nor Infinity, so write null" * _has_nan(body)
        raise RefusalError(400, f"the body is not JSON: {error}{advice}") from None


def _has_nan(body: bytes) -> bool:
    """Whether a body that is not JSON would be, if NaN and Infinity were numbers of it."""
    try:
        pydantic_core.from_json(body, allow_inf_nan=True)
    except ValueError:
        return False
    return True
