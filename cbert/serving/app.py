"""The routes: predictions over HTTP, and what the page asks for."""

import asyncio
import pathlib
from concurrent.futures import Future
from typing import Annotated, Any, Literal

import pydantic
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from cbert.errors import UserError
from cbert.serving import answers, page_data
from cbert.serving.batching import Answer, Batcher, BusyError
from cbert.serving.limits import Limits, RefusalError, read, sentence
from cbert.serving.predictor import Predictor

PAGE = pathlib.Path(__file__).parent / "page"


class _Body(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)


class Asked(_Body):
    """A set or sequence, and what is asked of it; the fields are those of `answers.Query`."""

    items: list[str | None]
    context: dict[str, Any] | None = None
    k: int = 5
    slots: int = 1
    exclude: list[str] = []
    only: list[str] | None = None

    def query(self) -> answers.Query:
        return answers.Query(
            self.items, self.context, self.k, self.slots, self.exclude, self.only
        )


class _ToModel(_Body):
    model: Literal["main", "compare"] = "main"


class CompleteBody(Asked, _ToModel):
    pass


class CompleteBatchBody(_ToModel):
    queries: list[Asked]


class ScoreBody(_ToModel):
    items: list[str]
    context: dict[str, Any] | None = None


class ExplainBody(_ToModel):
    items: list[str | None]
    context: dict[str, Any] | None = None
    item: str


class Refusal(pydantic.BaseModel):
    error: str


class Service:
    """The models, and the line in front of them."""

    def __init__(self, models: dict[str, Predictor], batcher: Batcher, limits: Limits) -> None:
        self.models, self.batcher, self.limits = models, batcher, limits

    def model(self, name: str) -> Predictor:
        if name not in self.models:
            raise RefusalError(
                400, f"model {name!r} is not served; start the server with --compare=DIR"
            )
        return self.models[name]

    async def complete(self, request: Request, model: str, asked: list[Asked]) -> list[dict]:
        """Completions of checked queries, which may share a call with other requests'."""
        predictor = self.model(model)
        questions = []
        for place, one in enumerate(asked):
            where = f"queries.{place}: " if len(asked) > 1 else ""
            try:
                questions.append(predictor.check(one.query()))
            except UserError as error:
                raise UserError(f"{where}{error}") from None
            if one.k > self.limits.k:
                raise UserError(
                    f"{where}k is {one.k}; the server lists at most {self.limits.k} items"
                )
        return await self._ask(request, predictor.answer, questions)

    async def call(self, request: Request, function: Any, *arguments: Any) -> dict:
        """The answer of one call that is not shared."""

        def answer(questions: list[tuple]) -> list[Any]:
            return [function(*question) for question in questions]

        return (await self._ask(request, answer, [arguments]))[0]

    async def _ask(self, request: Request, answer: Answer, questions: list[Any]) -> list[dict]:
        """Answers, as long as their asker stays and time is left."""
        try:
            futures = self.batcher.submit(answer, questions)
        except BusyError:
            raise RefusalError(503, "too many questions wait; try again later") from None
        found = asyncio.ensure_future(_all(futures))
        gone = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait(
                {found, gone},
                timeout=self.limits.answer_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if found.done():
                return [one.to_dict() for one in found.result()]
            if gone.done():
                raise RefusalError(499, "the client left")
            raise RefusalError(
                503, f"no answer within {self.limits.answer_seconds:g} seconds; try again later"
            )
        finally:
            found.cancel()
            gone.cancel()


async def _all(futures: list[Future]) -> list[Any]:
    return await asyncio.gather(*map(asyncio.wrap_future, futures))


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_app(models: dict[str, Predictor], batcher: Batcher, limits: Limits) -> FastAPI:
    """The application.

    Args:
      models: `main`, and `compare` where there is a second one; of one schema.
      batcher: Stands before the device.
      limits: What a request may be.
    """
    service = Service(models, batcher, limits)
    # FastAPI's own documentation pages fetch scripts from elsewhere.
    app = FastAPI(
        title="cbert", docs_url=None, redoc_url=None, responses={"4XX": {"model": Refusal}}
    )
    _add_refusals(app)
    _add_predictions(app, service)
    _add_descriptions(app, service)
    app.mount("/page", StaticFiles(directory=PAGE))
    return app


def _add_predictions(app: FastAPI, service: Service) -> None:
    limits = service.limits

    @app.post("/complete", **_takes(CompleteBody))
    async def complete(request: Request) -> JSONResponse:
        """Ranked items for each hidden position, given the visible items and the context."""
        body = await read(request, CompleteBody, limits)
        (found,) = await service.complete(request, body.model, [body])
        return JSONResponse(found)

    @app.post("/complete_batch", **_takes(CompleteBatchBody))
    async def complete_batch(request: Request) -> JSONResponse:
        """A completion for each query, in their order; one that is refused refuses all."""
        body = await read(request, CompleteBatchBody, limits)
        if not 1 <= len(body.queries) <= limits.queries:
            raise RefusalError(
                400, f"queries holds {len(body.queries)}; give from 1 to {limits.queries}"
            )
        found = await service.complete(request, body.model, body.queries)
        return JSONResponse({"completions": found})

    @app.post("/score", **_takes(ScoreBody))
    async def score(request: Request) -> JSONResponse:
        """Log-probability (nats) and rank of each item given the others and the context."""
        body = await read(request, ScoreBody, limits)
        function = service.model(body.model).score
        return JSONResponse(await service.call(request, function, body.items, body.context))

    @app.post("/explain", **_takes(ExplainBody))
    async def explain(request: Request) -> JSONResponse:
        """What each feature of the context does for the log-odds (nats) of one item."""
        body = await read(request, ExplainBody, limits)
        function = service.model(body.model).explain
        return JSONResponse(
            await service.call(request, function, body.items, body.context, body.item)
        )


def _add_descriptions(app: FastAPI, service: Service) -> None:
    main = service.models["main"]
    described = page_data.describe(service.models) | {"example": page_data.example(main)}
    names = page_data.Names(main.schema)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/schema")
    async def schema() -> JSONResponse:
        """The models, the context's features and a set to start from."""
        return JSONResponse(described)

    @app.get("/items")
    async def items(
        query: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> JSONResponse:
        """Item names that hold every word of the query."""
        return JSONResponse(names.search(query, limit))

    @app.get("/health")
    async def health() -> JSONResponse:
        """Whether the server answers, and how many questions it has answered."""
        line = service.batcher
        return JSONResponse(
            {
                "status": "ok",
                "answered": line.answered,
                "dropped": line.dropped,
                "waiting": line.waiting,
            }
        )


def _takes(kind: type[pydantic.BaseModel]) -> dict[str, Any]:
    """A route's body for /openapi.json; the route reads it itself, within the limits."""
    found = kind.model_json_schema()
    if "$defs" in found:  # References would be sought from the document's root.
        found["properties"]["queries"]["items"] = found.pop("$defs")["Asked"]
    content = {"application/json": {"schema": found}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": content}}}


def _add_refusals(app: FastAPI) -> None:
    """Every refusal is a status and `{"error": one sentence}`."""

    def refuse(status: int, words: str) -> JSONResponse:
        # Where the body was not read to its end, what follows on the connection is not HTTP.
        headers = {"Connection": "close"} if status in (408, 413) else None
        return JSONResponse({"error": words}, status, headers)

    @app.exception_handler(UserError)
    async def mistake(_: Request, error: UserError) -> JSONResponse:
        return refuse(400, " ".join(str(error).split()))

    @app.exception_handler(RefusalError)
    async def refusal(_: Request, error: RefusalError) -> JSONResponse:
        return refuse(error.status, error.sentence)

    @app.exception_handler(RequestValidationError)
    async def parameter(_: Request, error: RequestValidationError) -> JSONResponse:
        return refuse(400, sentence(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def route(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 404:
            return refuse(404, f"there is nothing at {request.url.path[:80]}")
        if error.status_code == 405:
            return refuse(405, f"{request.url.path[:80]} does not take {request.method}")
        return refuse(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def failure(_: Request, error: Exception) -> JSONResponse:
        return refuse(500, "the server failed; its log says why")
