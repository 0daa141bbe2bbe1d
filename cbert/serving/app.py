"""The routes: predictions over HTTP, and the data of the page."""

import pathlib
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from cbert.inference.predictor import Predictor
from cbert.inference.queries import Completion, Explanation, Scores
from cbert.serving import bodies, messages, page_data, refusals, worker
from cbert.serving.batching import Batcher
from cbert.serving.limits import Limits
from cbert.serving.service import Service

PAGE = pathlib.Path(__file__).parent / "page"

_REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": messages.Refusal, "description": "The request is refused."},
    "5XX": {"model": messages.Refusal, "description": "The server is busy or failed."},
}


def make_app(models: dict[str, Predictor], batcher: Batcher, limits: Limits) -> FastAPI:
    """The application; `guard.Guard` belongs in front of it.

    Args:
      models: `main`, and `compare` where there is a second one; of one schema.
      batcher: The queue in front of the device.
      limits: The limits of a request.
    """
    service = Service(models, batcher, limits)
    # FastAPI's own documentation pages fetch scripts from elsewhere.
    app = FastAPI(
        title="cbert",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=_REFUSALS,
    )
    app.router.route_class = bodies.route_class(limits)
    refusals.add_handlers(app)
    _add_predictions(app, service)
    _add_descriptions(app, service)
    app.mount("/page", StaticFiles(directory=PAGE))
    app.openapi()  # Made now, because it takes a tenth of a second.
    return app


def _add_predictions(app: FastAPI, service: Service) -> None:
    @app.post("/complete")
    async def complete(request: Request, body: messages.CompleteBody) -> Completion:
        """Ranked items for each masked position, given the visible items and the context."""
        return (await service.complete(request, body.model, [body.query()]))[0]

    @app.post("/complete_batch")
    async def complete_batch(
        request: Request, body: messages.CompleteBatchBody
    ) -> messages.Completions:
        """A completion for each query, in their order; one refused query refuses all."""
        queries = [query.query() for query in body.queries]
        completions = await service.complete(request, body.model, queries)
        return messages.Completions(completions=completions)

    @app.post("/score")
    async def score(request: Request, body: messages.ScoreBody) -> Scores:
        """Log-probability (nats) and rank of each item given the others and the context."""
        function = service.model(body.model).score
        return await service.call(request, function, body.items, body.context)

    @app.post("/explain")
    async def explain(request: Request, body: messages.ExplainBody) -> Explanation:
        """The change in the log-odds (nats) of one item by each feature of the context."""
        function = service.model(body.model).explain
        return await service.call(request, function, body.items, body.context, body.item)


def _add_descriptions(app: FastAPI, service: Service) -> None:
    description = page_data.describe(service.models).model_dump_json(exclude_none=True)
    names = page_data.Names(service.models["main"].schema)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/schema", response_model=messages.Description)
    async def schema() -> Response:
        """The models, the context's features and a set to start from."""
        return Response(description, media_type="application/json")

    @app.get("/items")
    async def items(
        query: Annotated[str, fastapi.Query(max_length=page_data.MAX_SEARCH)] = "",
        limit: Annotated[int, fastapi.Query(ge=1, le=100)] = 20,
    ) -> messages.Matches:
        """Items whose names hold every word of the query."""
        return await worker.run(names.search, query, limit)

    @app.get("/health")
    async def health() -> messages.Health:
        """Returns whether the server answers, and how many inputs its queue has seen."""
        queue = service.batcher
        return messages.Health(
            completed=queue.completed, dropped=queue.dropped, waiting=queue.waiting
        )
