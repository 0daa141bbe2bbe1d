"""The service between a request and the device: it checks, queues and drops queries."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from starlette.requests import Request

from cbert.errors import UserError
from cbert.inference.checks import EncodedQuery
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Completion, Query
from cbert.serving import worker
from cbert.serving.batching import Batcher, BusyError, Compute
from cbert.serving.limits import CLIENT_LEFT, Limits, RefusalError

Result = TypeVar("Result")


class Service:
    """The models, and the queue in front of them."""

    def __init__(self, models: dict[str, Predictor], batcher: Batcher, limits: Limits) -> None:
        self.models, self.batcher, self.limits = models, batcher, limits

    def model(self, name: str) -> Predictor:
        if name not in self.models:
            raise RefusalError(
                400, f"model {name!r} is not served; compare another model to have two"
            )
        return self.models[name]

    async def complete(
        self, request: Request, model: str, queries: Sequence[Query]
    ) -> list[Completion]:
        """Completions, computed in calls that other requests may share."""
        predictor = self.model(model)
        encoded = await worker.run(self._encode, predictor, queries)
        completions = await self.compute(request, predictor.predict, encoded)
        self._check_size(completions)
        return completions

    async def call(
        self, request: Request, function: Callable[..., Result], *arguments: Any
    ) -> Result:
        """The result of one call that is not shared."""

        def compute(calls: list[tuple]) -> list[Result]:
            return [function(*call) for call in calls]

        return (await self.compute(request, compute, [arguments]))[0]

    async def compute(
        self, request: Request, function: Compute, inputs: Sequence[Any]
    ) -> list[Any]:
        """Results, while the client stays and time is left; raises `RefusalError`."""
        try:
            futures = self.batcher.submit(function, inputs)
        except BusyError:
            raise RefusalError(503, "too many queries wait; try again later") from None
        results = asyncio.ensure_future(_all(futures))
        leaving = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {results, leaving},
                timeout=self.limits.response_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if results.done():
                return results.result()
            if leaving.done():
                raise RefusalError(CLIENT_LEFT, "the client left")
            raise RefusalError(
                503,
                f"no result within {self.limits.response_seconds:g} seconds; try again later",
            )
        finally:
            results.cancel()
            leaving.cancel()

    def _encode(self, predictor: Predictor, queries: Sequence[Query]) -> list[EncodedQuery]:
        encoded: list[EncodedQuery] = []
        for index, query in enumerate(queries):
            try:
                encoded.append(predictor.check(query))
            except UserError as error:
                where = f"queries.{index}: " if len(queries) > 1 else ""
                raise UserError(f"{where}{error}") from None
        predictions = sum(len(query.masked) * query.k for query in encoded)
        if predictions > self.limits.predictions:
            raise RefusalError(
                400,
                f"the masked positions and k make {predictions:,} predictions; one request "
                f"takes at most {self.limits.predictions:,}",
            )
        return encoded

    def _check_size(self, completions: Sequence[Completion]) -> None:
        """Refuses a response that names very long items very often."""
        characters = sum(
            len(prediction.item)
            for completion in completions
            for predictions in completion.predictions
            for prediction in predictions
        )
        if characters > self.limits.response_characters:
            raise RefusalError(
                400,
                f"the response would name items of {characters:,} characters in all; ask for "
                "fewer queries, slots or a smaller k",
            )


async def _all(futures: Sequence[Future]) -> list[Any]:
    return await asyncio.gather(*map(asyncio.wrap_future, futures))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
