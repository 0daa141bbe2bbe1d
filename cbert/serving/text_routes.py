"""The routes of a model of texts."""

import functools
import typing
from collections.abc import Sequence
from typing import Any

import pydantic
from fastapi import FastAPI, Request, Response

from cbert.inference.text_checks import EncodedText
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextExplanation, TextPrediction, TextQuery
from cbert.serving import messages, text_messages, worker
from cbert.serving.limits import Limits, RefusalError
from cbert.serving.reading import Readings
from cbert.serving.service import Service
from cbert.tasks.masked_language import MaskedLanguage

# The result of each task.
PREDICTIONS = {kind.task: kind for kind in typing.get_args(TextPrediction)}


def add(app: FastAPI, service: Service[TextPredictor]) -> None:
    """Adds predictions of texts; the response of `/predict` is that of the models' task."""
    prediction = PREDICTIONS[service.models["main"].task]
    predictions = text_messages.Predictions[prediction]  # type: ignore[valid-type]
    readings = Readings(service)

    @app.post("/predict", response_model=prediction)
    async def predict_one(request: Request, body: text_messages.PredictBody) -> Response:
        """What the model's task says of a text, given the context."""
        _check_characters([body], service.limits)
        (result,) = await _predict(service, request, body.model, [body.query()])
        return await _response(prediction, result)

    @app.post("/predict_batch", response_model=predictions)
    async def predict_batch(request: Request, body: text_messages.PredictBatchBody) -> Response:
        """A prediction for each query, in their order; one refused query refuses all."""
        _check_characters(body.queries, service.limits)
        queries = [query.query() for query in body.queries]
        results = await _predict(service, request, body.model, queries)
        return await _response(predictions, predictions(predictions=results))

    @app.post("/embed", response_model=text_messages.Embeddings)
    async def embed(request: Request, body: text_messages.EmbedBody) -> Response:
        """The last block's output at `[CLS]`, or the mean over all tokens, for each text."""
        _check_characters(body.queries, service.limits)
        vectors = await _embed(service, request, body)
        listed = text_messages.Embeddings.model_construct(embeddings=vectors)
        return await _response(text_messages.Embeddings, listed)

    @app.post("/explain")
    async def explain(request: Request, body: text_messages.ExplainTextBody) -> TextExplanation:
        """The change in the log-odds (nats) of the first prediction by each feature."""
        _check_characters([body], service.limits)
        predictor = service.model(body.model)
        (encoded,) = await service.check(predictor.check, [body.query()])
        _, contexts = encoded.context.with_each_dropped()
        _check_windows([encoded] * len(contexts), service.limits)
        return await service.call(request, predictor.explain_checked, encoded)

    @app.post("/reading")
    async def read(request: Request, body: text_messages.ReadingTextBody) -> messages.Reading:
        """The mean attention to each feature, or how far the method's gates are open."""
        _check_characters([body], service.limits)
        return await readings.read(request, body.model, body.query())


def warm_up(predictor: TextPredictor) -> None:
    """Compiles what `/embed` needs, which embeds one text at a time."""
    for length in predictor.program.lengths:
        words = "a " * (length - 2)  # Beside [CLS] and [SEP], each of them is one token.
        for pooling in predictor.program.functions.embeddings:
            predictor.embed([words], pooling=pooling)


async def _predict(
    service: Service[TextPredictor],
    request: Request,
    model: str,
    queries: Sequence[TextQuery],
) -> list[Any]:
    """Predictions, computed in calls that other requests may share."""
    predictor = service.model(model)
    encoded = await service.check(predictor.check, queries)
    if predictor.task == MaskedLanguage.name:
        count = sum(len(query.positions) * query.k for query in encoded)
        service.check_predictions(count, "the masks and k")
    _check_windows(encoded, service.limits)
    return await service.compute(request, predictor.predict_checked, encoded)


async def _embed(
    service: Service[TextPredictor], request: Request, body: text_messages.EmbedBody
) -> list[Any]:
    """Vectors, one text at a time in a call that no other request shares."""
    predictor = service.model(body.model)
    check = functools.partial(predictor.check, predicted=False)
    encoded = await service.check(check, [query.query() for query in body.queries])

    def compute(queries: list[EncodedText]) -> list[Any]:
        return [predictor.embed_checked([q], body.pooling)[0].tolist() for q in queries]

    return await service.compute(request, compute, encoded)


def _check_characters(
    bodies: Sequence[text_messages.TextQueryBody | text_messages.EmbeddedTextBody],
    limits: Limits,
) -> None:
    """Refuses texts whose tokens would keep other requests waiting."""
    characters = [count for body in bodies for count in body.characters()]
    for count, what, most in (
        (max(characters), "a text has", limits.text_characters),
        (sum(characters), "the texts have", limits.all_characters),
    ):
        if count > most:
            raise RefusalError(400, f"{what} {count:,} characters; give at most {most:,}")


def _check_windows(queries: Sequence[EncodedText], limits: Limits) -> None:
    """Refuses passages that overlapping windows make much longer than they are."""
    divided = [query.windows for query in queries if len(query.windows) > 1]
    count = sum(len(window.tokens) for windows in divided for window in windows)
    if count > limits.window_tokens:
        raise RefusalError(
            400,
            f"the passages make windows of {count:,} tokens; give shorter or fewer ones, of at "
            f"most {limits.window_tokens:,}",
        )


async def _response(kind: Any, value: Any) -> Response:
    """JSON written in the worker thread; FastAPI would check it again, on the event loop."""
    content = await worker.run(pydantic.TypeAdapter(kind).dump_json, value)
    return Response(content, media_type="application/json")
