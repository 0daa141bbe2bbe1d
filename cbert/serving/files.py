"""Completing a file of queries: read, answered and written in blocks."""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from cbert import files
from cbert.data import readers
from cbert.errors import UserError
from cbert.serving.answers import Query
from cbert.serving.predictor import Predictor
from cbert.serving.program import BATCH_SIZES

BLOCK = BATCH_SIZES[-1]  # A question holds a byte for every item: few at a time.
_ASKED = tuple(field.name for field in dataclasses.fields(Query))
# A record is a query too; what else it says has no part in the answer.
_IGNORED = ("id", "group", "split", "reference")


def complete(
    predictor: Predictor,
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    defaults: Query,
    skip_bad_rows: int = 0,
) -> tuple[int, list[str]]:
    """Writes one answer a query, whole or not at all.

    Args:
      predictor: Who answers.
      source: JSON Lines: queries by the fields of `Query`, or records.
      target: JSON Lines: `line`, the record's `id` if it has one, and the completion.
      defaults: For the fields that a line does not give.
      skip_bad_rows: How many lines that cannot be answered may be left out.

    Returns:
      How many were answered, and for each line left out what was wrong with it.

    Raises:
      UserError: the file or a line cannot be read or answered; names `file:line`.
    """
    source, target = pathlib.Path(source).expanduser(), pathlib.Path(target).expanduser()
    if not target.parent.is_dir():
        raise UserError(f"{target}: no such directory; make it first")
    if target.resolve() == source.resolve():
        raise UserError(f"{target}: give a file that is not the input")
    bad_rows = readers.BadRows(source, skip_bad_rows)
    count = 0

    def answer_all(path: pathlib.Path) -> None:
        nonlocal count
        with path.open("w", encoding="utf-8") as file:
            asked = _queries(predictor, source, defaults, bad_rows)
            while block := list(itertools.islice(asked, BLOCK)):
                heads, queries = zip(*block, strict=True)
                answers = predictor.complete_batch(queries)
                for head, answer in zip(heads, answers, strict=True):
                    file.write(json.dumps({**head, **answer.to_dict()}) + "\n")
                count += len(block)
        if not count:
            raise UserError(f"{source}: no queries; give one JSON object a line with 'items'")

    files.replace(target, answer_all)
    return count, bad_rows.found


def _queries(
    predictor: Predictor,
    source: pathlib.Path,
    defaults: Query,
    bad_rows: readers.BadRows,
) -> Iterator[tuple[dict[str, Any], Query]]:
    """Checked queries, each with the line and the id that its answer begins with."""
    for line, row in readers.rows(source, readers.Columns()):
        try:
            row = row() if callable(row) else row
            query = _query(row, defaults)
            predictor.check(query)
        except UserError as error:
            bad_rows.add(line, error)
            continue
        yield {"line": line, **({"id": row["id"]} if row.get("id") is not None else {})}, query


def _query(row: Any, defaults: Query) -> Query:
    if not isinstance(row, dict):
        raise UserError(f"a query must be an object, not {row!r:.60}")
    for name in row:
        if name not in _ASKED + _IGNORED:
            raise UserError(f"unknown field {name!r:.60}; a query has {', '.join(_ASKED)}")
    if not isinstance(row.get("id"), str | int | None):
        raise UserError(f"id is {row['id']!r:.60}; it must be a string or a whole number")
    if "items" not in row:
        raise UserError("no 'items'; give a list of strings")
    return dataclasses.replace(defaults, **{n: row[n] for n in _ASKED if n in row})
