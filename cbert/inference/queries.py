"""Queries to a predictor and its results, as plain values."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from cbert.errors import UserError, check_kind, shown
from cbert.schema.python_values import plain
from cbert.schema.values import check_text

_Given = TypeVar("_Given")
_Encoded = TypeVar("_Encoded")
# A record is a query too; these fields of it do not change the prediction.
_IGNORED = ("id", "group", "split", "weight", "reference", "label", "tags", "answer")


@dataclasses.dataclass(frozen=True)
class BaseQuery:
    """What queries share: `needed`, the fields of which a mapping must have one."""

    needed: ClassVar[tuple[str, ...]]


_Query = TypeVar("_Query", bound=BaseQuery)


@dataclasses.dataclass(frozen=True)
class Query(BaseQuery):
    """A set or a sequence to complete, given a context.

    Attributes:
      items: The visible items; None stands for a masked item.
      context: Feature name to value, as in a record; a feature is missing where it is
        absent, None or NaN.
      k: How many items to list for each masked position.
      slots: How many masked positions to append where no item is None.
      exclude: Items that are not listed.
      only: The items to choose from; None for the whole vocabulary.
    """

    needed = ("items",)

    items: Sequence[str | None] = ()
    context: Mapping[str, Any] | None = None
    k: int = 5
    slots: int = 1
    exclude: Sequence[str] = ()
    only: Sequence[str] | None = None


class Jsonable:
    """A result that can be written as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, with dicts in place of results within."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]


@dataclasses.dataclass(frozen=True)
class Prediction(Jsonable):
    """One item of a ranked list; `rank` counts from 1 among the items that may be listed."""

    item: str
    probability: float
    rank: int


@dataclasses.dataclass(frozen=True)
class Completion(Jsonable):
    """A ranked list for each masked position, in the order of the positions.

    Attributes:
      predictions: For each masked position at most k items, the most probable first.
      unknown_items: Visible and excluded items that are not in the vocabulary.
      unknown_context: Feature name to its values that were never seen in training.
      missing_context: Features that the context does not give.
      cut: Whether a sequence was cut to its latest items, because it is longer than the model
        takes.
    """

    predictions: list[list[Prediction]]
    unknown_items: list[str]
    unknown_context: dict[str, list[str]]
    missing_context: list[str]
    cut: bool = False


@dataclasses.dataclass(frozen=True)
class Score(Jsonable):
    """The fit of an item: its log-probability (nats) and rank among all real items.

    Both are None for an item that is not in the vocabulary.
    """

    item: str
    log_probability: float | None
    rank: int | None


@dataclasses.dataclass(frozen=True)
class Scores(Jsonable):
    """A score for each item, in the order given; the others as in `Completion`."""

    scores: list[Score]
    unknown_items: list[str]
    unknown_context: dict[str, list[str]]
    missing_context: list[str]


@dataclasses.dataclass(frozen=True)
class Explanation(Jsonable):
    """The change that each feature of the context makes in the prediction of one item.

    Attributes:
      item: The item to explain.
      probability: Its probability with the context as given, among all real items.
      log_odds: Its log(p / (1 - p)), in nats.
      features: Feature name to the log-odds with the context as given minus the log-odds with
        this feature missing; 0 for a feature that is missing anyway.
      outside_training: Whether the model was trained without context dropout: then a context
        with a feature dropped may be unlike any it has seen, and the differences may mislead.
      uses_context: Whether the method conditions on the context; if it does not, all are 0.
      unknown_items, unknown_context, missing_context, cut: As in `Completion`.
    """

    item: str
    probability: float
    log_odds: float
    features: dict[str, float]
    outside_training: bool
    uses_context: bool
    unknown_items: list[str]
    unknown_context: dict[str, list[str]]
    missing_context: list[str]
    cut: bool = False


def check_all(check: Callable[[_Given], _Encoded], queries: Sequence[_Given]) -> list[_Encoded]:
    """Encodes every query; raises `UserError`, which says which of several it is."""
    check_kind("queries", queries, list | tuple, "a list of queries")
    encoded: list[_Encoded] = []
    for index, query in enumerate(queries):
        try:
            encoded.append(check(query))
        except UserError as error:
            where = f"queries.{index}: " if len(queries) > 1 else ""
            raise UserError(f"{where}{error}") from None
    return encoded


def as_query(query: Any, kind: type[_Query]) -> _Query:
    """A query as it is, or made of a mapping with its fields; raises `UserError`."""
    if isinstance(query, Mapping):
        return with_fields(kind(), {name: plain(value) for name, value in query.items()})
    if not isinstance(query, kind):
        raise UserError(
            f"a query is {shown(query)}; give a mapping with the fields of a record, or a "
            f"{kind.__name__}"
        )
    arrays = {n: plain(v) for n, v in vars(query).items() if isinstance(v, np.ndarray)}
    return dataclasses.replace(query, **arrays) if arrays else query


def with_fields(query: _Query, row: Mapping[str, Any]) -> _Query:
    """A query with a row's fields; what is None in the row stays, as what it lacks.

    Raises:
      UserError: the row has unknown fields, or nothing to predict.
    """
    fields = [field.name for field in dataclasses.fields(query)]
    row = {name: value for name, value in row.items() if value is not None}
    for name in row:
        if name not in fields and name not in _IGNORED:
            raise UserError(
                f"unknown field {shown(name)}; drop it, or use one of {', '.join(fields)}; "
                "a feature belongs in context"
            )
    if not isinstance(row.get("id"), str | int | None) or isinstance(row.get("id"), bool):
        raise UserError(f"id is {shown(row['id'])}; it must be a string or a whole number")
    if isinstance(row.get("id"), str):
        check_text(row["id"], "id")
    if not any(name in row for name in query.needed):
        raise UserError(
            f"no {' or '.join(map(repr, query.needed))}; give "
            + ("a text" if "text" in query.needed else "a list of strings")
        )
    return dataclasses.replace(query, **{n: row[n] for n in fields if n in row})


def check_encoded(queries: Any, kind: type) -> None:
    """Raises `UserError` for what is no list of what a predictor's `check` returned."""
    wanted = "a list of what check returned"
    check_kind("queries", queries, list | tuple, wanted)
    for index, query in enumerate(queries):
        check_kind(f"queries.{index}", query, kind, wanted.removeprefix("a list of "))
