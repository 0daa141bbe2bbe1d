"""Predicts a file of queries, which it reads, predicts and writes in blocks."""

import dataclasses
import itertools
import pathlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from cbert import files
from cbert.data import readers, tables
from cbert.data.row_errors import BadRows
from cbert.data.tables import Columns
from cbert.errors import UserError, did_you_mean, printable, shown, warn
from cbert.inference import result_files
from cbert.inference.checks import EncodedQuery
from cbert.inference.predictor import Predictor
from cbert.inference.program import BATCH_SIZES
from cbert.inference.queries import Query, with_fields
from cbert.inference.text_checks import EncodedText
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextQuery

BLOCK = BATCH_SIZES[-1]  # As many as are computed at once.
# Texts of about one length are predicted together, and among more texts there are more of them.
TEXT_BLOCK = 16 * BLOCK
# The endings of results; any other one would be JSON Lines under a wrong name.
_WRITTEN = ("", ".jsonl", ".json", ".ndjson", ".csv", ".parquet")


@dataclasses.dataclass
class Notes:
    """How many queries of a file have unknown items or values, lack features, or were cut.

    Attributes:
      unknown_items: The queries with an item that the model does not know.
      all_unknown: Feature to the queries in which none of its values is known.
      unknown: Feature to the queries in which one of its values is unknown.
      missing: Feature to the queries that do not have it.
      cut: The queries whose text was cut.
      latest: The queries whose sequence was cut to its latest items.
    """

    unknown_items: int = 0
    all_unknown: Counter[str] = dataclasses.field(default_factory=Counter)
    unknown: Counter[str] = dataclasses.field(default_factory=Counter)
    missing: Counter[str] = dataclasses.field(default_factory=Counter)
    cut: int = 0
    latest: int = 0

    def add(self, query: EncodedQuery | EncodedText, uses_context: bool) -> None:
        """Counts one query; its context only where the model reads it."""
        if uses_context:
            self.all_unknown.update(query.context.all_unknown)
            self.unknown.update(list(query.context.unknown))
            self.missing.update(query.context.missing)
        if isinstance(query, EncodedText):
            self.cut += query.cut
        else:
            self.unknown_items += bool(query.unknown_items)
            self.latest += bool(query.cut)

    def line(self) -> str:
        """Such as `unknown: plan 36; missing: flags 40; cut 3`; empty where all is 0."""
        parts = [f"unknown items: {self.unknown_items:,}"] if self.unknown_items else []
        parts += [
            f"{what}: " + ", ".join(f"{printable(name)} {times:,}" for name, times in found)
            for what, counts in (("unknown", self.unknown), ("missing", self.missing))
            if (found := counts.most_common())
        ]
        parts += [f"cut {self.cut:,}"] if self.cut else []
        parts += [f"cut to their latest items: {self.latest:,}"] if self.latest else []
        return "; ".join(parts)


def predict(
    predictor: Predictor | TextPredictor,
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    defaults: Query | TextQuery,
    skip_bad_rows: int = 0,
    columns: Columns | None = None,
    drop: Collection[str] = (),
) -> tuple[int, list[str], Notes]:
    """Writes one result a query, in order; the file appears whole or not at all.

    Args:
      predictor: Completes the queries, or predicts the texts.
      source: JSON Lines: queries by the fields of `Query` or `TextQuery`, or records.
      target: `line`, the record's `id` if it has one, and the result: JSON Lines, or by its
        ending a table, see `result_files.writer`.
      defaults: The values of the fields that a line does not give, a `TextQuery` for a
        predictor of texts.
      skip_bad_rows: How many wrong lines may be left out.
      columns: How the columns of a table map to the fields; None where their names are equal.
        The model's schema decides the kinds of features.
      drop: Fields, and features of the context, that are not read.

    Returns:
      The number of results, for each line left out its mistake, and how many queries have
      unknown values or the like.

    Raises:
      UserError: the file cannot be read or a line is wrong; names `file:line`. Or the file has
        nothing of a name that `drop` gives.
    """
    source, target = pathlib.Path(source).expanduser(), pathlib.Path(target).expanduser()
    _check_target(target, source)
    bad_rows = BadRows(source, skip_bad_rows)
    queries = _queries(predictor, source, defaults, bad_rows, columns or Columns(), drop)
    notes, count = Notes(), 0

    def write_all(path: pathlib.Path) -> None:
        nonlocal count
        with result_files.writer(path, target.suffix) as write:
            count = _write(write, predictor, queries, notes)
        if not count:
            wanted = " or ".join(map(repr, defaults.needed))
            raise UserError(
                f"{source}: no queries{bad_rows.first()}; give at least one, with {wanted}"
            )

    files.replace(target, write_all)
    if names := [name for name, times in notes.all_unknown.items() if times == count > 1]:
        warn(
            f"{source}: the values of {printable(', '.join(names))} are unknown to the model "
            f"in all {count:,} queries"
        )
    return count, bad_rows.messages, notes


def _write(
    write: result_files.Write,
    predictor: Predictor | TextPredictor,
    queries: Iterator[tuple[dict[str, Any], Any]],
    notes: Notes,
) -> int:
    """Writes the results, block by block; counts them, and what is noted of their queries."""
    size = TEXT_BLOCK if isinstance(predictor, TextPredictor) else BLOCK
    compute: Callable[[Sequence[Any]], Sequence[Any]] = predictor.predict_checked
    count = 0
    while block := list(itertools.islice(queries, size)):
        heads, encoded = zip(*block, strict=True)
        for query in encoded:
            notes.add(query, predictor.uses_context)
        write(heads, compute(encoded))
        count += len(block)
    return count


def _check_target(target: pathlib.Path, source: pathlib.Path) -> None:
    """Refuses a file that results cannot be written to, before anything is predicted."""
    if not target.parent.is_dir():
        raise UserError(f"{target}: no such directory; make it first")
    if target.resolve() == source.resolve():
        raise UserError(f"{target}: give a file that is not the input")
    if target.suffix.lower() not in _WRITTEN:
        raise UserError(
            f"{target}: results are not written in this form; give a name that ends in "
            ".jsonl, .csv or .parquet"
        )


def _queries(
    predictor: Any,
    source: pathlib.Path,
    defaults: Query | TextQuery,
    bad_rows: BadRows,
    columns: Columns,
    drop: Collection[str],
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Encoded queries, each with the line and the id that its result begins with.

    Raises:
      UserError: the file cannot be read, a line is wrong, or the file has nothing of a name
        that `drop` gives.
    """
    of_texts = isinstance(defaults, TextQuery)
    columns = dataclasses.replace(
        columns,
        fields=tables.MAPPED_OF_TEXT if of_texts else tables.MAPPED,
        of_schema_only=True,
        of_schema={feature.name: feature.kind for feature in predictor.schema.features},
        # Parquet has the context as a column of its own.
        dropped=tuple(name for name in drop if name != "context"),
    )
    names: dict[str, None] = {}
    for line, row in readers.rows(source, columns):
        try:
            row = row() if callable(row) else row
            names.update(dict.fromkeys(_names(row)))
            encoded = predictor.check(with_fields(defaults, _kept(row, drop)))
        except UserError as error:
            bad_rows.add(line, error)
            continue
        named = "id" not in drop and row.get("id") is not None
        head = {"line": line, **({"id": row["id"]} if named else {})}
        yield head, encoded
    for name in drop if names else ():
        if name not in names:
            raise UserError(
                f"{source}: drop names {shown(name)}; {did_you_mean(name, names)} must be one "
                f"of {', '.join(names)}"
            )


def _names(row: Any) -> Iterator[str]:
    """The names of a row's fields, and of the features of its context."""
    if isinstance(row, dict):
        yield from row
        if isinstance(row.get("answer"), dict):
            yield "answer_start"  # A table's column, which the reader has put into the answer.
        if isinstance(row.get("context"), dict):
            yield from row["context"]


def _kept(row: Any, drop: Collection[str]) -> dict[str, Any]:
    """A row without the fields, and the features of its context, that are dropped."""
    if not isinstance(row, dict):
        raise UserError(f"a query must be an object, not {shown(row)}")
    row = {name: value for name, value in row.items() if name not in drop}
    if isinstance(row.get("context"), dict):
        context = row.pop("context")
        kept = {name: value for name, value in context.items() if name not in drop}
        # Without the features that are dropped, a table's row may have no context at all.
        row |= {"context": kept} if kept or not context else {}
    return row
