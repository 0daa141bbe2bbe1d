"""The routes: predictions over HTTP, and the data of the page."""

import pathlib
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

import cbert
from cbert.inference.predictor import Predictor
from cbert.inference.text_predictor import TextPredictor
from cbert.serving import (
    bodies,
    item_routes,
    messages,
    page_data,
    refusals,
    text_page_data,
    text_routes,
)
from cbert.serving.batching import Batcher
from cbert.serving.limits import Limits
from cbert.serving.metrics import CONTENT_TYPE, Metrics
from cbert.serving.service import Service

PAGE = pathlib.Path(__file__).parent / "page"

_REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": messages.Refusal, "description": "The request is refused."},
    "5XX": {"model": messages.Refusal, "description": "The server is busy or failed."},
}


Models = Mapping[str, Predictor] | Mapping[str, TextPredictor]


def make_app(models: Models, batcher: Batcher, limits: Limits, metrics: Metrics) -> FastAPI:
    """The application; `guard.Guard` belongs in front of it, and before that the `Observer`.

    Args:
      models: `main`, and `compare` where there is a second one; of one schema and one task.
      batcher: The queue in front of the device.
      limits: The limits of a request.
      metrics: What is counted.
    """
    # FastAPI's own documentation pages fetch scripts from elsewhere.
    app = FastAPI(
        title="cbert",
        version=cbert.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=_REFUSALS,
    )
    app.router.route_class = bodies.route_class(limits)
    refusals.add_handlers(app)
    _add_common(app, batcher, metrics)
    _add_own(app, Service(models, batcher, limits))
    app.mount("/page", StaticFiles(directory=PAGE))
    app.openapi()  # Made now, because it takes a tenth of a second.
    return app


def paths(app: FastAPI) -> list[str]:
    """The paths of an application's routes."""
    return [route.path for route in app.routes if hasattr(route, "path")]


def _add_own(app: FastAPI, service: Service) -> None:
    """Adds the routes of the models' kind, and their description."""
    description: messages.Shared
    if isinstance(service.models["main"], TextPredictor):
        text_routes.add(app, service)
        description = text_page_data.describe(service.models)
    else:
        item_routes.add(app, service)
        description = page_data.describe(service.models)
    written = description.model_dump_json(exclude_none=True)

    @app.get("/schema", response_model=type(description))
    async def schema() -> Response:
        """The models, the context's features and an example to start from."""
        return Response(written, media_type="application/json")


def _add_common(app: FastAPI, batcher: Batcher, metrics: Metrics) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/health")
    async def health() -> messages.Health:
        """Returns whether the server answers, and how many inputs its queue has seen."""
        return messages.Health(
            completed=batcher.completed, dropped=batcher.dropped, waiting=batcher.waiting
        )

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counts() -> Response:
        """Returns what the server counts, as text for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)
