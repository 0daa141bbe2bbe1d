"""What a request may be: its size, its time, its words. What it may not is refused here."""

import asyncio
import dataclasses
import json
import math
from typing import Any, TypeVar

import pydantic
from starlette.requests import ClientDisconnect, Request

# How long to read on after a body that is too large, for its sender to see the refusal.
DRAIN_SECONDS = 1.0
SHOWN = 80

_KINDS = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}

Body = TypeVar("Body", bound=pydantic.BaseModel)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one server.

    Attributes:
      body_bytes: The largest body.
      queries: The most queries of one request.
      k: The most items to list.
      read_seconds: How long a request may take to arrive.
      answer_seconds: How long it may take to be answered.
      connections: The most connections at once.
    """

    body_bytes: int = 2**20
    queries: int = 64
    k: int = 128
    read_seconds: float = 10.0
    answer_seconds: float = 10.0
    connections: int = 512


class RefusalError(Exception):
    """A request that is not answered: a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


async def read(request: Request, kind: type[Body], limits: Limits) -> Body:
    """The body of a request, checked; raises `RefusalError`."""
    raw = _parse(await _receive(request, limits))
    try:
        return kind.model_validate(raw)
    except pydantic.ValidationError as error:
        raise RefusalError(400, sentence(error.errors(include_url=False)[0])) from None


async def _receive(request: Request, limits: Limits) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(limits.read_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    break
            else:
                return bytes(body)
    except TimeoutError:
        raise RefusalError(
            408, f"the body did not arrive within {limits.read_seconds:g} seconds"
        ) from None
    except ClientDisconnect:
        raise RefusalError(499, "the client left") from None
    await _drain(request)
    raise RefusalError(413, f"the body is larger than {limits.body_bytes:,} bytes")


async def _drain(request: Request) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while (await request.receive()).get("more_body"):
                pass
    except TimeoutError:
        pass


def _parse(body: bytes) -> Any:
    """JSON as the standard has it: no NaN, no number beyond float64, no broken Unicode."""
    try:
        raw = json.loads(body, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
        if b"\\u" in body:
            json.dumps(raw, ensure_ascii=False).encode()
        return raw
    except UnicodeError:
        raise RefusalError(400, "the body is not valid Unicode") from None
    except (ValueError, RecursionError) as error:
        raise RefusalError(400, f"the body is not JSON: {error}"[:200]) from None


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise RefusalError(400, f"the body holds {text[:SHOWN]}; a number must be finite")
    return number


def _whole(text: str) -> int:
    _finite(text)
    return int(text)


def sentence(error: Any) -> str:
    """One of pydantic's errors as a sentence: the place, what is wrong, the value."""
    place = ".".join(str(part) for part in error["loc"]) or "the body"
    if error["type"] == "missing":
        return f"{place} is missing"
    if error["type"] == "extra_forbidden":
        return f"{place} is not a field; /openapi.json lists them"
    if error["type"] == "literal_error":
        problem = f"must be {error['ctx']['expected']}"
    elif error["type"] in _KINDS:
        problem = f"must be {_KINDS[error['type']]}"
    else:
        problem = error["msg"].replace("Input should", "must")
    value = json.dumps(error["input"], ensure_ascii=False, default=str)
    return f"{place} {problem}, not {value[:SHOWN]}"
