"""Between a request and the device: questions are checked, wait, are answered or dropped."""

import asyncio
from concurrent.futures import Future
from typing import Any

from starlette.requests import Request

from cbert.errors import UserError
from cbert.serving.answers import Query
from cbert.serving.batching import Answer, Batcher, BusyError
from cbert.serving.limits import Limits, RefusalError
from cbert.serving.predictor import Predictor


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

    async def complete(
        self, request: Request, model: str, queries: list[Query]
    ) -> list[dict[str, Any]]:
        """Completions, computed in calls that other requests may share."""
        predictor = self.model(model)
        questions = []
        for place, query in enumerate(queries):
            where = f"queries.{place}: " if len(queries) > 1 else ""
            try:
                questions.append(predictor.check(query))
            except UserError as error:
                raise UserError(f"{where}{error}") from None
            if query.k > self.limits.k:
                raise UserError(
                    f"{where}k is {query.k}; the server lists at most {self.limits.k} items"
                )
        return await self.ask(request, predictor.answer, questions)

    async def call(self, request: Request, function: Any, *arguments: Any) -> dict[str, Any]:
        """The answer of one call that is not shared."""

        def answer(questions: list[tuple]) -> list[Any]:
            return [function(*question) for question in questions]

        return (await self.ask(request, answer, [arguments]))[0]

    async def ask(
        self, request: Request, answer: Answer, questions: list[Any]
    ) -> list[dict[str, Any]]:
        """Answers, while their asker stays and time is left; raises `RefusalError`."""
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
