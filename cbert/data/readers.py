"""Reading records from JSON, CSV and Parquet files, one at a time."""

import csv
import dataclasses
import pathlib
import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow

from cbert import schema as schema_lib
from cbert.data import csv_rows, json_rows, parquet_rows, tables
from cbert.data.records import Record
from cbert.data.row_errors import BadRows
from cbert.data.tables import Columns
from cbert.data.validator import REFUSE, Validator
from cbert.errors import UserError

_JSON = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")
_CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


def read(
    path: str | pathlib.Path,
    kind: str = schema_lib.SET,
    columns: Columns | None = None,
    bad_rows: BadRows | None = None,
    dropped: Collection[str] = (),
    target: str | None = None,
    repeats: str = REFUSE,
    features: Iterable[schema_lib.Feature] = (),
) -> Iterator[Record]:
    """Yields the validated records of a JSON, CSV or Parquet file.

    Args:
      path: The file; its suffix decides the format.
      kind: `set`, `sequence` or `text`.
      columns: How the columns, or of JSON Lines the names, map to fields.
      bad_rows: Takes the rows that cannot be read; by default the first one is raised.
      dropped: Context features that may have any values.
      target: The kind of target that labels of texts are read as; None for what they are.
      repeats: As for `Validator`.
      features: As for `Validator`.

    Raises:
      UserError: a row, or the file, is not readable; names `file:line`, the value, the fix.
    """
    path = pathlib.Path(path).expanduser()
    validator = Validator(kind, dropped, path, target, repeats, features)
    bad_rows = bad_rows or BadRows(path)
    columns = dataclasses.replace(columns or Columns(), dropped=tuple(dropped))
    if kind == schema_lib.TEXT:
        columns = dataclasses.replace(columns, fields=tables.MAPPED_OF_TEXT)
    empty = True
    for line, row in rows(path, columns):
        try:
            record = validator(row() if callable(row) else row, line)
        except UserError as error:
            bad_rows.add(line, error)
            continue
        empty = False
        yield record
    if empty:
        needed = "a string 'text'" if kind == schema_lib.TEXT else "a list 'items'"
        raise UserError(
            f"{path}: no records{bad_rows.first()}; give at least one, with {needed}"
        )
    validator.finish()


def rows(path: pathlib.Path, columns: Columns) -> Iterator[tuple[int, Any]]:
    """A file's rows with their lines, not validated; a row is a value, or a call that makes it.

    Raises:
      UserError: the file is not readable, or from the call, a row.
    """
    name = path.name.lower()
    try:
        if name.endswith(_CSV):
            yield from csv_rows.rows(path, columns)
        elif only := [
            n for n in ("multi_valued", "numerical", "missing") if getattr(columns, n)
        ]:
            raise UserError(f"{only[0]} is for CSV; {path} is not")
        elif name.endswith(_JSON):
            if columns.categorical:
                raise UserError(f"categorical is for CSV and Parquet; {path} is not")
            yield from json_rows.rows(path, columns)
        elif name.endswith(".parquet"):
            yield from parquet_rows.rows(path, columns)
        else:
            raise UserError(
                f"{path}: unknown format; use .jsonl, .csv or .tsv (also with .gz), or .parquet"
            )
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except EOFError:
        raise UserError(f"{path}: the gzip file is truncated; copy it again") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; convert it to UTF-8") from None
    except _UNREADABLE as error:
        raise UserError(f"{path}: not readable ({str(error)[:200]})") from None


_UNREADABLE = (
    zlib.error,
    pyarrow.ArrowException,
    csv.Error,
    OSError,
    ValueError,
    OverflowError,
)
