"""The routes of a model of sets or sequences."""

from collections.abc import Sequence
from typing import Annotated

import fastapi
from fastapi import FastAPI, Request

from cbert.inference.predictor import Predictor
from cbert.inference.queries import Completion, Explanation, Query, Scores
from cbert.serving import messages, page_data, worker
from cbert.serving.limits import Limits, RefusalError
from cbert.serving.reading import Readings
from cbert.serving.service import Service


def add(app: FastAPI, service: Service[Predictor]) -> None:
    """Adds predictions of items, and the search among their names."""
    names = page_data.Names(service.models["main"].schema)
    readings = Readings(service)

    @app.post("/complete")
    async def complete_one(request: Request, body: messages.CompleteBody) -> Completion:
        """Ranked items for each masked position, given the visible items and the context."""
        return (await complete(service, request, body.model, [body.query()]))[0]

    @app.post("/complete_batch")
    async def complete_batch(
        request: Request, body: messages.CompleteBatchBody
    ) -> messages.Completions:
        """A completion for each query, in their order; one refused query refuses all."""
        queries = [query.query() for query in body.queries]
        completions = await complete(service, request, body.model, queries)
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

    @app.post("/reading")
    async def read(request: Request, body: messages.ReadingBody) -> messages.Reading:
        """The mean attention to each feature, or how far the method's gates are open."""
        return await readings.read(request, body.model, body.query())

    @app.get("/items")
    async def items(search: Annotated[messages.Search, fastapi.Query()]) -> messages.Matches:
        """Items whose names hold every word of the query."""
        return await worker.run(names.search, search.query, search.limit)


async def complete(
    service: Service[Predictor], request: Request, model: str, queries: Sequence[Query]
) -> list[Completion]:
    """Completions, computed in calls that other requests may share."""
    predictor = service.model(model)
    encoded = await service.check(predictor.check, queries)
    count = sum(len(query.masked) * query.k for query in encoded)
    service.check_predictions(count, "the masked positions and k")
    completions = await service.compute(request, predictor.predict_checked, encoded)
    _check_characters(completions, service.limits)
    return completions


def _check_characters(completions: Sequence[Completion], limits: Limits) -> None:
    """Refuses a response that names very long items very often."""
    characters = sum(
        len(prediction.item)
        for completion in completions
        for predictions in completion.predictions
        for prediction in predictions
    )
    if characters > limits.response_characters:
        raise RefusalError(
            400,
            f"the response would name items of {characters:,} characters in all; ask for "
            "fewer queries, slots or a smaller k",
        )
