"""Completes a file of queries, which it reads, completes and writes in blocks."""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from cbert import files
from cbert.data import readers
from cbert.errors import UserError
from cbert.inference.predictor import Predictor
from cbert.inference.program import BATCH_SIZES
from cbert.inference.queries import Query

BLOCK = BATCH_SIZES[-1]  # Few at a time: an encoded query holds a byte for every item.
_FIELDS = tuple(field.name for field in dataclasses.fields(Query))
# A record is a query too; these fields of it do not change the completion.
_IGNORED = ("id", "group", "split", "reference")


def complete(
    predictor: Predictor,
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    defaults: Query,
    skip_bad_rows: int = 0,
) -> tuple[int, list[str]]:
    """Writes one completion a query; the file appears whole or not at all.

    Args:
      predictor: Completes the queries.
      source: JSON Lines: queries by the fields of `Query`, or records.
      target: JSON Lines: `line`, the record's `id` if it has one, and the completion.
      defaults: The values of the fields that a line does not give.
      skip_bad_rows: How many wrong lines may be left out.

    Returns:
      The number of completions, and for each line left out its mistake.

    Raises:
      UserError: the file cannot be read or a line is wrong; names `file:line`.
    """
    source, target = pathlib.Path(source).expanduser(), pathlib.Path(target).expanduser()
    if not target.parent.is_dir():
        raise UserError(f"{target}: no such directory; make it first")
    if target.resolve() == source.resolve():
        raise UserError(f"{target}: give a file that is not the input")
    bad_rows = readers.BadRows(source, skip_bad_rows)
    count = 0

    def write_all(path: pathlib.Path) -> None:
        nonlocal count
        with path.open("w", encoding="utf-8") as file:
            queries = _queries(predictor, source, defaults, bad_rows)
            while block := list(itertools.islice(queries, BLOCK)):
                heads, batch = zip(*block, strict=True)
                completions = predictor.complete_batch(batch)
                for head, completion in zip(heads, completions, strict=True):
                    file.write(json.dumps({**head, **completion.to_dict()}) + "\n")
                count += len(block)
        if not count:
            raise UserError(f"{source}: no queries; give one JSON object a line with 'items'")

    files.replace(target, write_all)
    return count, bad_rows.messages


def _queries(
    predictor: Predictor,
    source: pathlib.Path,
    defaults: Query,
    bad_rows: readers.BadRows,
) -> Iterator[tuple[dict[str, Any], Query]]:
    """Checked queries, each with the line and the id that its completion begins with."""
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
        if name not in _FIELDS + _IGNORED:
            raise UserError(f"unknown field {name!r:.60}; a query has {', '.join(_FIELDS)}")
    if not isinstance(row.get("id"), str | int | None):
        raise UserError(f"id is {row['id']!r:.60}; it must be a string or a whole number")
    if "items" not in row:
        raise UserError("no 'items'; give a list of strings")
    return dataclasses.replace(defaults, **{n: row[n] for n in _FIELDS if n in row})
