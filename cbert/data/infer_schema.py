"""A schema inferred from the training split of a data set, record by record."""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np

from cbert.data.records import Record
from cbert.errors import UserError, printable, shown
from cbert.schema import KINDS, SET, Feature, Schema, recognise, schema_file
from cbert.schema.feature import Accumulator

MOST_SHOWN = 180  # Characters of a list of useless features, which is part of one line.


class FeatureAccumulator:
    """Infers the context's features from contexts that it sees one after the other.

    Args:
      value_min_count: Strings that occur less often become unknown.
      widths: Embedding width by feature, where the default is not wanted.
      kinds: Kind by feature, where the values alone do not decide it.
    """

    def __init__(
        self,
        value_min_count: int = 2,
        widths: Mapping[str, int] | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        self._min_count = value_min_count
        self._widths, self._kinds = widths or {}, kinds or {}
        self._examples = 0
        self._columns: dict[str, _Column] = {}
        self._names: dict[str, None] = {}  # They have the order of the schema.

    def observe(self, context: Mapping[str, Any]) -> None:
        """Takes a context of the training split, after `make_room`."""
        self._examples += 1
        for name, value in context.items():
            self._names[name] = None
            if value is not None:
                self._columns[name].observe(value)

    def make_room(self, context: Mapping[str, Any]) -> None:
        """Takes a context of any split; raises `UserError` for a value of no kind."""
        for name, value in context.items():
            if name not in self._columns:
                self._columns[name] = _Column(
                    name, self._kinds.get(name), self._widths.get(name), self._min_count
                )
            if value is not None:
                self._columns[name].make_room(value)

    def finish(self) -> tuple[Feature, ...]:
        """The features; raises `UserError` as `SchemaAccumulator.finish` does."""
        if not self._examples:
            raise UserError(
                "the training split is empty; give more groups, or split_weights=80,10,10"
            )
        known = ", ".join(self._names) or "none"
        for name in self._widths:
            if name not in self._names:
                raise UserError(f"widths names {shown(name)}; the features are: {known}")
        for name, kind in self._kinds.items():
            if name not in self._names:
                raise UserError(
                    f"{shown(name)} is named as a {kind}; the features are: {known}"
                )
        self._check_useful()
        return tuple(self._columns[name].finish() for name in self._names)

    def _check_useful(self) -> None:
        """Raises `UserError` that names all features which say nothing about an example."""
        reasons = {name: self._columns[name].useless(self._examples) for name in self._names}
        useless = {name: reason for name, reason in reasons.items() if reason}
        if not useless:
            return
        found = _that_fit([f"{shown(name)} is {useless[name]}" for name in useless], "; ")
        names = _that_fit([printable(name) for name in useless], ",")
        more = f"; and {len(useless) - len(found)} more" * (len(found) < len(useless))
        again = ", and run again for those that do not fit here" * (len(names) < len(useless))
        raise UserError(
            f"context feature {'; '.join(found)}{more}; give drop={','.join(names)}{again}"
        )


def _that_fit(texts: list[str], joiner: str) -> list[str]:
    """The first texts, at least one, that have at most MOST_SHOWN characters when joined."""
    ends = np.cumsum([len(joiner) + len(text) for text in texts]) - len(joiner)
    return texts[: max(1, int((ends <= MOST_SHOWN).sum()))]


class SchemaAccumulator:
    """Infers a schema from records that it sees one after the other and does not keep.

    Its memory grows with the number of different items and values, and by 8 bytes for each
    value of a numerical feature.

    Args:
      kind: `set` or `sequence`.
      min_count: Items that occur less often become unknown.
      value_min_count: The same for the strings of context features.
      max_items: The most items an example may hold; by default the most of any record.
      widths: Embedding width by feature, where the default is not wanted.
      kinds: Kind by feature, where the values alone do not decide it.
    """

    def __init__(
        self,
        kind: str = SET,
        min_count: int = 2,
        value_min_count: int = 2,
        max_items: int | None = None,
        widths: Mapping[str, int] | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        self._kind, self._max_items = kind, max_items
        self._min_count = min_count
        self._items: collections.Counter[str] = collections.Counter()
        self._longest = 0
        self._features = FeatureAccumulator(value_min_count, widths, kinds)

    def observe(self, record: Record) -> None:
        """Takes a record of the training split; raises `UserError` for a wrong kind."""
        self._items.update(record.items)
        self.make_room(record)
        self._features.observe(record.context)

    def make_room(self, record: Record) -> None:
        """Takes a record of another split: the schema will be large enough to hold it."""
        self._longest = max(self._longest, len(record.items))
        self._features.make_room(record.context)

    def finish(self) -> Schema:
        """The schema.

        Raises:
          UserError: the data do not make a schema, or `widths` or `kinds` names no feature.
        """
        features = self._features.finish()
        counted = [pair for pair in self._items.items() if pair[1] >= self._min_count]
        counted.sort(key=lambda pair: (-pair[1], pair[0]))
        schema = Schema(
            kind=self._kind,
            max_items=self._max_items or self._longest,
            items=tuple(item for item, _ in counted),
            counts=tuple(count for _, count in counted),
            features=features,
        )
        schema_file.check(schema)
        return schema


class _Column:
    """A feature whose values are still being read."""

    def __init__(self, name: str, kind: str | None, width: int | None, min_count: int) -> None:
        self._name, self._named_kind = name, kind
        self._width, self._min_count = width, min_count
        self._kind: type[Feature] | None = None
        self._accumulator: Accumulator[Any] | None = None
        self._first: object = None
        self._constant, self._observed, self._entries = True, 0, 1

    def observe(self, value: object) -> None:
        """Takes a value of a training example, after `make_room`."""
        if self._accumulator is None:
            assert self._kind is not None
            self._first = value
            self._accumulator = self._kind.accumulator(self._name, self._width, self._min_count)
        self._accumulator.observe(value)
        self._observed += 1
        self._constant = self._constant and value == self._first

    def make_room(self, value: Any) -> None:
        """Remembers how many entries the longest value of any split has.

        Raises:
          UserError: the first value is of no kind, or one cannot be of the feature's kind.
        """
        if self._kind is None:
            self._kind = self._decide(value)
        elif not self._kind.holds(value):
            raise UserError(
                f"context {self._name!r} is {shown(value)}, but {self._kind.kind} elsewhere; "
                "write all its values alike"
            )
        self._entries = max(self._entries, self._kind.entries_of(value))

    def useless(self, examples: int) -> str:
        """Why the feature says nothing about an example; empty where it says something."""
        if self._accumulator is None:
            return "missing in all training examples"
        if self._observed == examples and self._constant:
            return f"always {shown(self._first)} in training"
        return ""

    def finish(self) -> Feature:
        """The feature, which is not useless."""
        assert self._accumulator is not None
        return self._accumulator.finish().with_entries(self._entries)

    def _decide(self, value: object) -> type[Feature]:
        """The kind that was named, if the value can be of it, else the value's own."""
        own = recognise(self._name, value)
        if self._named_kind is None:
            return own
        kind = KINDS[self._named_kind]
        if not kind.holds(value):
            raise UserError(
                f"context {self._name!r} is {shown(value)}, {own.kind}; it cannot be of the "
                f"kind {kind.kind}; give {kind.wanted}, or another kind"
            )
        return kind
