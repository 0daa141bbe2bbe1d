"""Reading records from JSON Lines, CSV and Parquet files."""

import csv
import dataclasses
import gzip
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pyarrow.parquet

from cbert import progress
from cbert import schema as schema_lib
from cbert.data.records import Record, RowError, Validator
from cbert.errors import UserError, shown

MAX_LINE = 64 * 2**20
MAPPED = ("id", "group", "items", "split")


@dataclasses.dataclass(frozen=True)
class Columns:
    """How a table's columns map to a record's fields.

    Attributes:
      names: Field (`items`, `id`, `group`, `split`) to the column that holds it.
      separator: What separates the values of a list in one CSV cell.
      categorical: CSV columns to take as strings although they look like numbers.
      multi_valued: CSV columns that hold lists of strings.
    """

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    separator: str = "|"
    categorical: tuple[str, ...] = ()
    multi_valued: tuple[str, ...] = ()


def read(
    path: str | pathlib.Path,
    kind: str = schema_lib.SET,
    columns: Columns | None = None,
    skip_bad_rows: int = 0,
) -> tuple[list[Record], list[str]]:
    """Reads and validates a JSON Lines (plain or .gz), CSV or Parquet file.

    Args:
      path: The file; its suffix decides the format.
      kind: `set`, where repeats are refused, or `sequence`.
      columns: How the columns of CSV and Parquet map to fields.
      skip_bad_rows: How many bad rows may be left out.

    Returns:
      The records, and for each bad row left out the line that says what was wrong with it.

    Raises:
      UserError: a row, or the file, is not readable; names `file:line`, the value, the fix.
    """
    path = pathlib.Path(path)
    validator = Validator(kind)
    records, skipped = [], []
    for line, row in rows(path, columns or Columns()):
        try:
            records.append(validator(row() if callable(row) else row, line))
        except RowError as error:
            message = f"{path}:{line}: {error}"
            if len(skipped) >= skip_bad_rows:
                hint = "" if not skip_bad_rows else f" (after {skip_bad_rows} skipped rows)"
                raise UserError(message + hint) from None
            skipped.append(message)
    if not records:
        raise UserError(f"{path}: no records; give one JSON object a line with a list 'items'")
    return records, skipped


def rows(path: pathlib.Path, columns: Columns) -> Iterator[tuple[int, Any]]:
    """A file's rows with their lines, not validated; a row is a value, or a call that makes it.

    Raises:
      UserError: the file is not readable, or from the call, as `RowError`, a row.
    """
    name = path.name.lower()
    try:
        if name.endswith((".jsonl", ".json", ".jsonl.gz", ".json.gz", ".ndjson")):
            yield from _json_lines(path)
        elif name.endswith(".csv"):
            yield from _csv(path, columns)
        elif name.endswith(".parquet"):
            yield from _parquet(path, columns)
        else:
            raise UserError(f"{path}: unknown format; use .jsonl, .jsonl.gz, .csv or .parquet")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except EOFError:
        raise UserError(f"{path}: the gzip file is truncated; copy it again") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; convert it to UTF-8") from None
    except (zlib.error, pyarrow.ArrowException, csv.Error, OSError, ValueError) as error:
        raise UserError(f"{path}: not readable ({str(error)[:200]})") from None


def _json_lines(path: pathlib.Path) -> Iterator[tuple[int, Callable[[], Any]]]:
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as file, progress.bar(desc="reading", unit=" rows") as bar:
        line = 0
        while text := file.readline(MAX_LINE):
            line += 1
            bar.update()
            if len(text) == MAX_LINE:
                raise UserError(
                    f"{path}:{line}: the line is longer than {MAX_LINE} bytes; split it"
                )
            if text.strip():
                yield line, lambda text=text: _parse(text)


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        start = text[:60].decode("utf-8", "replace").strip()
        raise RowError(
            f"not JSON ({str(error)[:80]}): {start!r}; write one object a line"
        ) from None


def _field_of(columns: Columns, available: list[str], path: pathlib.Path) -> dict[str, str]:
    """Column name to the record's field, `context` for all that are not mapped."""
    for field, column in columns.names.items():
        if field not in MAPPED:
            raise UserError(
                f"--columns maps {shown(field)}; the fields are {', '.join(MAPPED)}"
            )
        if column not in available:
            raise UserError(
                f"{path}: no column {shown(column)}; it has: {', '.join(available)}"
            )
    mapped = {column: field for field, column in columns.names.items()}
    unmapped = {field: field for field in MAPPED if field not in columns.names}
    return {name: mapped.get(name) or unmapped.get(name, "context") for name in available}


def _csv(path: pathlib.Path, columns: Columns) -> Iterator[tuple[int, Callable[[], Any]]]:
    csv.field_size_limit(MAX_LINE)
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        field_of = _field_of(columns, list(reader.fieldnames or ()), path)
        if "items" not in field_of.values():
            raise UserError(f"{path}: no column 'items'; map one with --columns=items:COLUMN")
        bar = progress.bar(reader, desc="reading", unit=" rows")
        rows = [(reader.line_num, row) for row in bar]
    strings = columns.categorical + columns.multi_valued
    numerical = {
        name
        for name, field in field_of.items()
        if field == "context" and name not in strings
        if all(_is_number(row[name]) for _, row in rows if row[name])
    }
    for line, row in rows:
        yield line, lambda row=row: _csv_record(row, field_of, numerical, columns)


def _csv_record(
    row: dict[str, Any], field_of: dict[str, str], numerical: set[str], columns: Columns
) -> dict[str, Any]:
    if None in row or None in row.values():
        raise RowError(
            f"the row has {'more' if None in row else 'fewer'} cells than the header; "
            "quote cells that hold a comma"
        )
    record: dict[str, Any] = {"context": {}}
    for name, field in field_of.items():
        cell = row[name]
        parts = [part.strip() for part in cell.split(columns.separator) if part.strip()]
        if field == "items":
            record["items"] = parts
        elif field != "context":
            record[field] = cell or None
        elif name in columns.multi_valued:
            record["context"][name] = parts or None
        elif cell:
            record["context"][name] = float(cell) if name in numerical else cell
    return record


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(path: pathlib.Path, columns: Columns) -> Iterator[tuple[int, dict[str, Any]]]:
    with pyarrow.parquet.ParquetFile(path) as file:
        field_of = _field_of(columns, file.schema_arrow.names, path)
        line = 0
        with progress.bar(desc="reading", unit=" rows") as bar:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    line += 1
                    bar.update()
                    record: dict[str, Any] = {"context": {}}
                    for name, value in row.items():
                        if field_of[name] != "context":
                            record[field_of[name]] = value
                        elif name == "context" and isinstance(value, dict):
                            record["context"].update(value)
                        else:
                            record["context"][name] = value
                    yield line, record
