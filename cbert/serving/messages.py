"""The bodies of requests and responses, from which /openapi.json is made."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pydantic
from pydantic_core import PydanticCustomError

from cbert.inference.queries import Completion, Query
from cbert.serving.refusals import MANY_VALUES, UNKNOWN_FIELD

MAX_QUERIES = 64
MAX_K = 128
MAX_VALUES = 10_000
MAX_SEARCH = 200  # Characters.

_VALUE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        *({"type": kind} for kind in ("string", "number", "boolean", "null")),
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "number"}},
    ]
}
# The model's schema decides the kind of a value, and the predictor checks it.
Value = Annotated[Any, pydantic.WithJsonSchema(_VALUE_SCHEMA)]


def _check_values(contexts: Iterable[dict[str, Any] | None]) -> None:
    """Refuses very many texts in the lists of contexts: each is looked up and may be named."""
    lists = (
        value for one in contexts for value in (one or {}).values() if isinstance(value, list)
    )
    count = sum(isinstance(one, str) for values in lists for one in values)
    if count > MAX_VALUES:
        raise PydanticCustomError(MANY_VALUES, "many", {"count": count, "most": MAX_VALUES})


def check_context(context: dict[str, Any] | None) -> dict[str, Any] | None:
    _check_values([context])
    return context


def check_batch(queries: list[Any]) -> list[Any]:
    _check_values(query.context for query in queries)
    return queries


ContextBody = Annotated[
    dict[str, Value] | None,
    pydantic.Field(
        description="Feature name to value; a feature may be missing.",
        max_length=10_000,
        fail_fast=True,
    ),
    pydantic.AfterValidator(check_context),
]
Item = Annotated[str, pydantic.Field(description="An item's name.")]
# The predictor checks lower bounds: it names the vocabulary's size, too.
_K_SCHEMA: dict[str, Any] = {"minimum": 1, "description": "Items to list."}
_SLOTS_SCHEMA: dict[str, Any] = {"minimum": 0, "description": "Masked positions to append."}
_short = pydantic.Field(max_length=10_000, fail_fast=True)
_long = pydantic.Field(max_length=100_000, fail_fast=True)
few_queries = pydantic.Field(min_length=1, max_length=MAX_QUERIES, fail_fast=True)
few_values = pydantic.AfterValidator(check_batch)


class Body(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _stop_at_the_first_unknown_field(cls, body: Any) -> Any:
        """Stops at one error, because pydantic would report each of a hundred thousand."""
        if isinstance(body, dict):
            for name in body:
                if name not in cls.model_fields:
                    raise PydanticCustomError(UNKNOWN_FIELD, "unknown", {"name": name[:80]})
        return body


class QueryBody(Body):
    """A set or a sequence to complete."""

    items: Annotated[list[Item | None], _short]
    context: ContextBody = None
    k: Annotated[int, pydantic.Field(le=MAX_K, json_schema_extra=_K_SCHEMA)] = 5
    slots: Annotated[int, pydantic.Field(json_schema_extra=_SLOTS_SCHEMA)] = 1
    exclude: Annotated[list[Item], _long] = []
    only: Annotated[list[Item], _long] | None = None

    def query(self) -> Query:
        return Query(self.items, self.context, self.k, self.slots, self.exclude, self.only)


class ModelBody(Body):
    model: Literal["main", "compare"] = "main"


class CompleteBody(QueryBody, ModelBody):
    """A set or a sequence to complete with one model."""


class CompleteBatchBody(ModelBody):
    """Several queries, completed together."""

    queries: Annotated[list[QueryBody], few_queries, few_values]


class ScoreBody(ModelBody):
    """Items to score, each given the others."""

    items: Annotated[list[Item], _short]
    context: ContextBody = None


class ExplainBody(ModelBody):
    """An item whose prediction is to be explained."""

    items: Annotated[list[Item | None], _short]
    context: ContextBody = None
    item: Item


class ReadingBody(ModelBody):
    """A set or a sequence of which the model reads the context."""

    items: Annotated[list[Item | None], _short]
    context: ContextBody = None

    def query(self) -> Query:
        return Query(self.items, self.context, k=1)


class Reading(pydantic.BaseModel):
    """What the model reads of the context.

    Of attention, the fraction that goes to each feature; of gates, how far each is open.
    """

    what: Literal["attention", "gates"]
    values: dict[str, float]


class Completions(pydantic.BaseModel):
    """A completion for each query, in their order."""

    completions: list[Completion]


class Refusal(pydantic.BaseModel):
    """The reason for a status of 400 or more."""

    error: str


class Health(pydantic.BaseModel):
    """The state of the queue in front of the model."""

    status: Literal["ok"] = "ok"
    completed: int
    dropped: int
    waiting: int


class ServedModel(pydantic.BaseModel):
    """One of the models served."""

    model: Literal["main", "compare"]
    method: str
    step: int
    shows: Literal["", "attention", "gates"]


class FeatureDescription(pydantic.BaseModel):
    """A feature of the context, and the fields that its control on the page needs."""

    model_config = pydantic.ConfigDict(extra="allow")

    name: str
    kind: str
    control: str


class Example(pydantic.BaseModel):
    """A set or a sequence to start from."""

    items: list[str]
    context: dict[str, Value]


class Shared(pydantic.BaseModel):
    """The models served, and the features of the context that they share."""

    models: list[ServedModel]
    features: list[FeatureDescription]


class Description(Shared):
    """The models served and the schema that they share."""

    kind: str
    max_items: int
    items: int
    example: Example


class NamedItem(pydantic.BaseModel):
    """An item of the vocabulary and its count in the training data."""

    name: str
    count: int


class Search(pydantic.BaseModel):
    """The parameters of a search among the names of items."""

    model_config = pydantic.ConfigDict(extra="forbid")

    query: Annotated[str, pydantic.Field(max_length=MAX_SEARCH)] = ""
    limit: Annotated[int, pydantic.Field(ge=1, le=100)] = 20


class Matches(pydantic.BaseModel):
    """Items whose names hold every word of a search, and how many there are in all."""

    items: list[NamedItem]
    total: int
