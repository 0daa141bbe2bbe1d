"""The service between a request and the device: it checks, queues and drops queries."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from starlette.requests import Request

from cbert.inference.queries import check_all
from cbert.serving import metrics, worker
from cbert.serving.batching import Batcher, BusyError, Compute
from cbert.serving.limits import CLIENT_LEFT, Limits, RefusalError

Model = TypeVar("Model")
Query = TypeVar("Query")
Encoded = TypeVar("Encoded")
Result = TypeVar("Result")


class Service(Generic[Model]):
    """The models, and the queue in front of them."""

    def __init__(self, models: Mapping[str, Model], batcher: Batcher, limits: Limits) -> None:
        self.models, self.batcher, self.limits = models, batcher, limits

    def model(self, name: str) -> Model:
        if name not in self.models:
            raise RefusalError(
                400,
                f"model {name!r} is not served; start the server with compare=RUN to have two",
            )
        return self.models[name]

    async def check(
        self, function: Callable[[Query], Encoded], queries: Sequence[Query]
    ) -> list[Encoded]:
        """Checks each query off the event loop; raises `UserError` that says which is wrong."""
        return await worker.run(check_all, function, queries)

    def check_predictions(self, count: int, made_by: str) -> None:
        """Raises `RefusalError` where a request asks for too many predictions."""
        most = self.limits.predictions
        if count > most:
            raise RefusalError(
                400,
                f"{made_by} make {count:,} predictions; one request takes at most {most:,}",
            )

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
                largest = max((future.batch for future in futures), default=0)
                known = getattr(request.state, metrics.BATCH, 0)
                setattr(request.state, metrics.BATCH, max(known, largest))
                return results.result()
            if leaving.done():
                raise RefusalError(CLIENT_LEFT, "the client left")
            raise RefusalError(
                503,
                f"no result within {self.limits.response_seconds:g} seconds; try again later",
            )
        except asyncio.CancelledError:  # It ends, and `shutdown_seconds` are over.
            raise RefusalError(503, "the server ends; try again later") from None
        finally:
            results.cancel()
            leaving.cancel()


async def _all(futures: Sequence[Future]) -> list[Any]:
    return await asyncio.gather(*map(asyncio.wrap_future, futures))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
