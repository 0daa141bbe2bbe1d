"""Every refusal as a status and `{"error": one sentence}`."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cbert import errors
from cbert.errors import UserError, one_line, shown

UNKNOWN_FIELD, MANY_VALUES = "unknown_field", "many_values"
_SHOWN = 80
_KINDS = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "list_type": "a list",
    "dict_type": "an object",
    "model_attributes_type": "an object",
    "model_type": "an object",
}


def response(
    status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """A refusal as a response; one that a client may repeat says after how many seconds."""
    again = {"Retry-After": "1"} if status == 503 else {}
    return JSONResponse(
        {"error": errors.reword(one_line(sentence))}, status, {**again, **(headers or {})}
    )


def add_handlers(app: FastAPI) -> None:
    """Makes the application answer each kind of exception with a refusal."""

    @app.exception_handler(UserError)
    async def mistake(_: Request, error: UserError) -> JSONResponse:
        return response(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return response(400, sentence(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def refusal(request: Request, error: HTTPException) -> JSONResponse:
        path = request.url.path[:80]
        words = str(error.detail)
        if words == "Not Found":
            words = f"there is nothing at {path}"
        if words == "Method Not Allowed":
            words = f"{path} does not take {request.method[:20]}"
        return response(error.status_code, words, error.headers)

    @app.exception_handler(Exception)
    async def failure(_: Request, error: Exception) -> JSONResponse:
        return response(500, "the server failed; its log says why")


def sentence(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a sentence: the field, the mistake, the value."""
    where = error["loc"][1:] if error["loc"][:1] in (("body",), ("query",)) else error["loc"]
    names = [str(name) for name in where]
    field = ".".join(names) or "the body"
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return f"{field} is missing; add it"
    if kind == UNKNOWN_FIELD:
        return f"{'.'.join([*names, context['name']])} is not a field; /openapi.json lists them"
    if kind == "extra_forbidden":
        return f"{field} is no parameter; /openapi.json lists them"
    if kind == MANY_VALUES:
        size, most = context["count"], context["most"]
        return f"{field} has {size:,} values; give at most {most:,} in all"
    if kind == "too_long":
        return f"{field} holds {len(error['input']):,}; give at most {context['max_length']:,}"
    if kind == "string_too_long":
        size, most = len(error["input"]), context["max_length"]
        return f"{field} has {size:,} characters; give at most {most:,}"
    if kind == "too_short":
        return f"{field} is empty; give at least {context['min_length']}"
    if kind == "literal_error":
        mistake = f"must be {context['expected']}"
    elif kind in _KINDS:
        mistake = f"must be {_KINDS[kind]}"
    else:
        mistake = error["msg"].replace("Input should", "must")
    return f"{field} {mistake}, not {_as_json(error['input'])}"


def _as_json(value: Any) -> str:
    """The beginning of a value; a long one is not written out, which would take time."""
    if isinstance(value, str):
        value = value[:_SHOWN]
    elif isinstance(value, list | dict):
        return shown(value, _SHOWN)
    return json.dumps(value, ensure_ascii=False, default=str)[:_SHOWN]
