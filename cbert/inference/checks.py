"""Checks and encodes queries; every refusal is one line that names the value and the fix.

Legend: V real items, L positions, P masked positions.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from cbert.errors import UserError, shown
from cbert.inference import context as context_lib
from cbert.inference.candidates import Candidates
from cbert.inference.context import CheckedContext
from cbert.inference.queries import Query, as_query
from cbert.schema import MASK_ITEM, SEQUENCE, SET, UNKNOWN_ITEM, Schema
from cbert.schema.python_values import plain
from cbert.schema.values import check_text


@dataclasses.dataclass(frozen=True)
class EncodedQuery:
    """A query that has passed its checks, ready for the model.

    Attributes:
      codes: Item codes `[L]`, `MASK_ITEM` at masked positions.
      masked: The masked positions `[P]`.
      context: The checked context.
      candidates: The items that may be listed.
      k: How many of them to list, at most all.
      unknown_items: Visible and excluded items that are not in the vocabulary.
      cut: How many items of a sequence were left out before its latest ones.
    """

    codes: list[int]
    masked: list[int]
    context: CheckedContext
    candidates: Candidates
    k: int
    unknown_items: list[str]
    cut: int = 0


class Checker:
    """Checks queries against a schema.

    Args:
      schema: The model's schema.
      positions: Whether the model has position embeddings, one for each of `max_items`.
    """

    def __init__(self, schema: Schema, positions: bool) -> None:
        self._schema = schema
        # A set has no order, so one as long as the longest in training can be extended by one.
        self.longest = schema.max_items if positions else schema.max_items + 1
        self._advice = ", such as the latest ones" if schema.kind == SEQUENCE else ""

    def query(self, query: Query | Mapping[str, Any]) -> EncodedQuery:
        """Checks and encodes a query; raises `UserError`."""
        query = as_query(query, Query)
        items = self._items(query.items, may_be_masked=True)
        check_number("slots", query.slots, 0, self.longest)
        check_number("k", query.k, 1, max(len(self._schema.items), Query.k))
        masked = [position for position, item in enumerate(items) if item is None]
        if not masked:
            masked = list(range(len(items), len(items) + int(query.slots)))
            items = items + [None] * len(masked)
        if not masked:
            raise UserError("slots is 0 and no item is None: nothing is masked; use slots=1")
        cut = self._cut(items, masked)
        items, masked = items[cut:], [position - cut for position in masked]
        context = self.context(query.context)
        codes = self._codes(items)
        candidates = self._candidates(query, codes)
        listed = int(candidates.mask(len(self._schema.items)).sum())
        if not listed:
            raise UserError(
                "only, exclude and the visible items leave no item to choose from; "
                "allow more items"
            )
        excluded = [name for name in query.exclude if name not in self._schema.codes]
        for name in excluded:  # A result names them.
            check_text(name, "excluded item")
        unknown = list(dict.fromkeys(_unknown(items, codes) + excluded))
        k = min(int(query.k), listed)
        return EncodedQuery(codes, masked, context, candidates, k, unknown, cut)

    def _cut(self, items: list[str | None], masked: list[int]) -> int:
        """How many items a sequence has before the latest ones that the model takes.

        Raises:
          UserError: one of them is to be predicted, or a set has too many.
        """
        beyond = max(len(items) - self.longest, 0)
        if beyond and self._schema.kind == SET:
            raise UserError(
                f"items and slots make {len(items)} positions; the model takes at most "
                f"{self.longest}, give fewer"
            )
        if masked[0] < beyond:
            raise UserError(
                f"position {masked[0]} of {len(items)} is to be predicted; the model takes the "
                f"latest {self.longest}, give fewer items after it"
            )
        return beyond

    def visible(self, items: Any) -> tuple[list[int], list[str]]:
        """Codes of items that are all visible, and the unknown ones.

        Raises:
          UserError: they are no list of strings, there are none or too many, or one occurs
            twice in a set.
        """
        items = self._items(plain(items), may_be_masked=False)
        if not items:
            raise UserError("items is empty; give at least one item")
        codes = self._codes(items)
        return codes, _unknown(items, codes)

    def code(self, item: Any) -> int:
        """The code of an item; raises `UserError` for one that is not in the vocabulary."""
        return self._known([item], "item", "give one that is")[0]

    def context(self, context: Any) -> CheckedContext:
        """Checks a context; in None all features are missing. Raises `UserError`."""
        return context_lib.check(self._schema, context)

    def _items(self, items: Any, may_be_masked: bool) -> list[str | None]:
        if not isinstance(items, list | tuple):
            raise UserError(f"items must be a list of strings, not {shown(items)}")
        seen = set()
        for item in items:
            if item is None and may_be_masked:
                continue
            if not isinstance(item, str):
                raise UserError(f"item {shown(item)} is not a string; items are strings")
            check_text(item, "item")
            if item in seen and self._schema.kind == SET:
                raise UserError(f"item {shown(item)} occurs twice in a set; remove one")
            seen.add(item)
        if may_be_masked and self._schema.kind == SEQUENCE:
            return list(items)  # Its latest items are taken.
        visible = sum(item is not None for item in items)
        if visible > self._schema.max_items:
            most = min(self._schema.max_items, self.longest - may_be_masked)
            raise UserError(
                f"items holds {visible} items; give at most {most}{self._advice}; max_items of "
                f"the model's schema is {self._schema.max_items}"
            )
        return list(items)

    def _codes(self, items: list[str | None]) -> list[int]:
        get = self._schema.codes.get
        return [MASK_ITEM if item is None else get(item, UNKNOWN_ITEM) for item in items]

    def _candidates(self, query: Query, codes: list[int]) -> Candidates:
        only, known = None, self._schema.codes
        if query.only is not None:
            only = np.array(self._known(query.only, "only"), np.int32)
        excluded = [known[n] for n in _names(query.exclude, "exclude") if n in known]
        visible = [code for code in codes if code >= 0] if self._schema.kind == SET else []
        left_out = np.array(excluded + visible, np.int32)
        return Candidates(only, left_out, only is not None or bool(excluded))

    def _known(self, names: Any, where: str, advice: str = "leave it out") -> list[int]:
        codes: list[Any] = [*map(self._schema.codes.get, _names(names, where))]
        if None in codes:
            unknown = next(name for name in names if name not in self._schema.codes)
            raise UserError(
                f"{where} names {shown(unknown)}, which is not in the vocabulary; {advice}"
            )
        return codes


def _names(names: Any, where: str) -> Collection[str]:
    """Names of items, known or not; raises `UserError` for what is no list of strings."""
    if not isinstance(names, list | tuple | set | frozenset):
        raise UserError(f"{where} must be a list of strings, not {shown(names)}")
    if {*map(type, names)} != {str}:  # Fast where each of many queries names a catalogue.
        for name in names:
            if not isinstance(name, str):
                raise UserError(f"{where} holds {shown(name)}; items are strings")
    return names


def _unknown(items: list[str | None], codes: list[int]) -> list[str]:
    pairs = zip(items, codes, strict=True)
    return list(
        dict.fromkeys(item for item, code in pairs if item is not None and code == UNKNOWN_ITEM)
    )


def check_number(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raises `UserError` where a value is not a whole number within bounds."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        bounds = f", at least {least}" if most is None else f" from {least} to {most}"
        raise UserError(f"{name} is {shown(value)}; it must be a whole number{bounds}")
