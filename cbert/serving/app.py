"""The routes: predictions over HTTP, and the data of the page."""

import pathlib
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from cbert.inference.predictor import Predictor
from cbert.serving import bodies, item_routes, messages, page_data, refusals
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
    item_routes.add(app, service)
    _add_descriptions(app, service)
    app.mount("/page", StaticFiles(directory=PAGE))
    app.openapi()  # Made now, because it takes a tenth of a second.
    return app


def _add_descriptions(app: FastAPI, service: Service) -> None:
    description = page_data.describe(service.models).model_dump_json(exclude_none=True)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/schema", response_model=messages.Description)
    async def schema() -> Response:
        """The models, the context's features and a set to start from."""
        return Response(description, media_type="application/json")

    @app.get("/health")
    async def health() -> messages.Health:
        """Returns whether the server answers, and how many inputs its queue has seen."""
        queue = service.batcher
        return messages.Health(
            completed=queue.completed, dropped=queue.dropped, waiting=queue.waiting
        )
