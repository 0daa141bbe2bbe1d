"""Rows are validated one by one, and become records."""

import difflib
import math
import pathlib
from collections.abc import Collection, Iterable
from typing import Any

from cbert import schema as schema_lib
from cbert.data.hashing import HashSet, hash64
from cbert.data.records import SPLITS, Record
from cbert.data.text_records import Text, target_kinds, validated, with_label_as
from cbert.errors import UserError, printable, shown, warn
from cbert.schema.python_values import without_booleans
from cbert.schema.values import check_text

_FIELDS = frozenset({"id", "group", "split", "weight", "context"})
FIELDS = _FIELDS | {"items", "reference"}
FIELDS_OF_TEXT = _FIELDS | set(Text.__slots__) - {"window"}  # Which `prepare` makes.
REFUSE, DROP = "refuse", "drop"  # What is done with items that a set has twice.
MOST_WARNINGS = 10  # Records of which each has other fields would fill the screen.


class Validator:
    """Turns rows into records, and holds each context feature to one kind over all rows.

    Args:
      kind: `set`, `sequence` or `text`.
      dropped: Context features that may have any values, because `prepare` leaves them out.
      path: The file of the rows, for warnings; empty where they are Python's.
      target: The kind of target that labels are read as, where the user or a schema says it.
      repeats: `refuse` or `drop`; with `drop` the records keep them, for who drops them.
      features: The features of a schema that was given, whose kinds hold from the first row on.
    """

    def __init__(
        self,
        kind: str = schema_lib.SET,
        dropped: Collection[str] = (),
        path: str | pathlib.Path = "",
        target: str | None = None,
        repeats: str = REFUSE,
        features: Iterable[schema_lib.Feature] = (),
    ) -> None:
        self._kind, self._dropped, self._path = kind, frozenset(dropped), path
        self._target = target
        self._no_repeats = kind == schema_lib.SET and repeats == REFUSE
        self._known = FIELDS_OF_TEXT if kind == schema_lib.TEXT else FIELDS
        self._ids = HashSet()  # The names would fill memory.
        self._unknown: set[str] = set()
        self._flat: set[str] | None = None  # What all rows have beside their fields.
        self._of_schema = {feature.name: feature for feature in features}
        self._features: dict[str, tuple[str, int, int]] = {}
        self._label: tuple[str, int] | None = None  # The kind of labels, and a line with one.

    def __call__(self, row: Any, line: int) -> Record:
        """Checks one row; raises `UserError`."""
        if not isinstance(row, dict):
            is_list = isinstance(row, list)
            what = "a list; write one object a line" if is_list else shown(row)
            raise UserError(f"a record must be an object, not {what}")
        is_text = self._kind == schema_lib.TEXT
        text = with_label_as(validated(row), self._target) if is_text else None
        items = [] if is_text else self._items(row)
        context, kept = self._context(row)
        identity = self._name(row, "id") or f"row-{line}"
        hashed = hash64(identity)
        extra = row.keys() - self._known
        if hashed in self._ids:
            raise UserError(
                f"id {shown(identity)} was used before; ids must differ, or be left out"
            )
        record = Record(
            id=identity,
            group=self._name(row, "group") or identity,
            items=items,
            context={**dict.fromkeys(extra & self._dropped), **context, **kept},
            split=self._split(row),
            reference=_reference(row.get("reference"), len(items)),
            text=text,
            weight=_weight(row.get("weight")),
        )
        label = self._checked_label(text, line)
        # A row that is refused leaves nothing behind, so this comes after all checks.
        self._remember(kept, line)
        self._label = label
        self._ids.add(hashed)
        self._note_unknown(extra - self._dropped, "context" in row, line)
        return record

    def finish(self) -> None:
        """Raises `UserError` where no row had a context, and all had the same other fields."""
        if not self._flat:
            return
        names = [printable(str(name)) for name in sorted(self._flat, key=str)]
        raise UserError(
            f"{self._path or 'the records'}: no record has a 'context', and features outside "
            f'it are ignored; write "context": {{"{names[0]}": ...}}, or Parquet or CSV, whose '
            f"columns are features, or give drop={','.join(names)}"
        )

    def _context(self, row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The context as it was given, and its features that are not dropped."""
        context = row.get("context")
        if context is None:
            context = {}
        if not isinstance(context, dict):
            raise UserError(f"'context' must be an object, not {shown(context)}")
        kept = {
            name: plain_value(name, value)
            for name, value in context.items()
            if name not in self._dropped
        }
        return context, kept

    def _split(self, row: dict[str, Any]) -> str:
        split = self._name(row, "split") or ""
        if split and split not in SPLITS:
            raise UserError(f"split is {shown(split)}; it must be one of {', '.join(SPLITS)}")
        return split

    def _note_unknown(self, extra: set[str], has_context: bool, line: int) -> None:
        """Warns of fields that records do not have, each once, and of a few only."""
        flat = set() if has_context else extra
        self._flat = flat if self._flat is None else self._flat & flat
        room = MOST_WARNINGS - len(self._unknown)
        if not room or not extra:
            return
        for name in sorted({str(name)[:80] for name in extra} - self._unknown)[:room]:
            near = difflib.get_close_matches(name, self._known, 1)
            advice = f"did you mean {near[0]!r}?" if near else "a feature belongs in 'context'"
            if name in FIELDS_OF_TEXT:
                advice = "only kind=text has it, with a list of 'words' in place of 'items'"
            place = f"{self._path}:{line}" if self._path else f"record {line}"
            warn(f"{place}: the field {shown(name)} is ignored; {advice}")
            self._unknown.add(name)

    def _items(self, row: dict[str, Any]) -> list[str]:
        items = row.get("items")
        if items is None and ("text" in row or "words" in row):
            raise UserError("no 'items'; the records hold texts, so give kind=text")
        if items is None:
            mapped = "" if "items" in row else ", or of a file map it with columns=items:NAME"
            raise UserError(f"no 'items'; give a list of strings{mapped}")
        if not isinstance(items, list):
            raise UserError(f"'items' must be a list of strings, not {shown(items)}")
        if not items:
            raise UserError("'items' is empty; an example needs at least one item")
        seen = set()
        for item in items:
            if not isinstance(item, str):
                raise UserError(f"item {shown(item)} is not a string; write it in quotes")
            check_text(item, "item")
            if self._no_repeats and item in seen:
                raise UserError(
                    f"item {shown(item)} occurs twice in a set; give repeats=drop to keep the "
                    "first of each, or kind=sequence where order and repeats matter"
                )
            seen.add(item)
        return items

    def _checked_label(self, text: Text | None, line: int) -> tuple[str, int] | None:
        """What is known of labels after this row; raises `UserError` where its kind differs."""
        if text is None or text.label is None:
            return self._label
        kind = target_kinds(text)[0]
        if self._label is None:
            return kind, line
        if self._label[0] != kind:
            described = {"label": "a string", "labels": "a list of strings"}
            raise UserError(
                f"'label' is {shown(text.label)}, {described.get(kind, 'a number')}; it was "
                f"{described.get(self._label[0], 'a number')} in line {self._label[1]}"
            )
        return self._label

    def _name(self, row: dict[str, Any], field: str) -> str | None:
        value = row.get(field)
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 1024:
            value = str(value)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise UserError(f"{field!r} must be a string that is not empty, not {shown(value)}")
        check_text(value, field)
        if "\0" in value:  # NumPy takes a name that ends in it for the name without it.
            raise UserError(f"{field!r} is {shown(value)}, with a NUL character; leave it out")
        return value

    def _remember(self, context: dict[str, Any], line: int) -> None:
        """Compares the kinds with those seen so far; stores them once all are right."""
        fresh = {}
        for name, value in context.items():
            if value is None:
                continue
            kind = schema_lib.recognise(name, value)
            if name in self._of_schema:
                _check_fits(self._of_schema[name], value)
                continue
            size = kind.entries_of(value) if kind.same_length else 0
            before = self._features.get(name)
            if before is None:
                fresh[name] = (kind.kind, size, line)
            elif before[:2] != (kind.kind, size):
                raise UserError(
                    f"context {name!r} is {shown(value)}, {_described(kind.kind, size)}; "
                    f"it was {_described(*before[:2])} in line {before[2]}; make all its "
                    f"values alike, or give drop={name}"
                )
        self._features.update(fresh)


def plain_value(name: str, value: Any) -> Any:
    """A context value with a boolean as a string; raises `UserError` for one in a list."""
    if not isinstance(name, str):
        raise UserError(f"the name of a context feature is {shown(name)}; use a string")
    check_text(name, "context feature")
    return without_booleans(name, value)


def _check_fits(feature: schema_lib.Feature, value: Any) -> None:
    """Raises `UserError` where a feature of a schema cannot have the value."""
    try:
        feature.check_kind(value)
    except UserError as error:
        raise UserError(f"the schema does not fit: {error}") from None


def _described(kind: str, size: int) -> str:
    return f"{kind} of length {size}" if size else kind


def _weight(raw: Any) -> float:
    if raw is None:
        return 1.0
    if not schema_lib.is_finite(raw) or raw < 0:
        raise UserError(
            f"'weight' is {shown(raw)}; use a finite number that is not negative, or null for 1"
        )
    return float(raw)


def _reference(raw: Any, items: int) -> dict[str, list[float]] | None:
    if raw is None:
        return None
    needed, optional = {"log_probability", "rank"}, "without_context"
    if not isinstance(raw, dict) or set(raw) - {optional} != needed:
        raise UserError(
            "'reference' must be an object of log_probability and rank, and of without_context "
            "where it is known"
        )
    for name in ("log_probability", *({optional} & set(raw))):
        _check_numbers(raw, name, items, float, -math.inf, 0)
    _check_numbers(raw, "rank", items, int, 1, 2**31 - 1)
    return raw


def _check_numbers(
    raw: dict[str, Any], name: str, items: int, kind: type, least: float, most: float
) -> None:
    values = raw[name]
    if not isinstance(values, list) or len(values) != items:
        raise UserError(f"reference {name!r} must be a list of {items} numbers, one an item")
    for value in values:
        plain = isinstance(value, kind | int) and schema_lib.is_finite(value)
        if not plain or not least <= value <= most:
            raise UserError(
                f"reference {name!r} holds {shown(value)}; a log-probability is at most 0, "
                "a rank a whole number from 1"
            )
