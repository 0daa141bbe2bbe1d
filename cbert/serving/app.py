"""The routes: predictions over HTTP, and what the page asks for."""

import pathlib
from typing import Annotated, Any, Literal

import pydantic
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from cbert.errors import UserError
from cbert.serving import answers, page_data
from cbert.serving.batching import Batcher
from cbert.serving.limits import Limits, RefusalError, read, sentence
from cbert.serving.predictor import Predictor
from cbert.serving.service import Service

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
        (found,) = await service.complete(request, body.model, [body.query()])
        return JSONResponse(found)

    @app.post("/complete_batch", **_takes(CompleteBatchBody))
    async def complete_batch(request: Request) -> JSONResponse:
        """A completion for each query, in their order; one that is refused refuses all."""
        body = await read(request, CompleteBatchBody, limits)
        if not 1 <= len(body.queries) <= limits.queries:
            raise RefusalError(
                400, f"queries holds {len(body.queries)}; give from 1 to {limits.queries}"
            )
        queries = [asked.query() for asked in body.queries]
        found = await service.complete(request, body.model, queries)
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
