"""Reading records from JSON Lines, CSV and Parquet files."""

import csv
import dataclasses
import gzip
import io
import json
import pathlib
import typing
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
_JSON_LINES = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")
_CSV = (".csv", ".csv.gz")
MAPPED = ("id", "group", "items", "split")


@dataclasses.dataclass(frozen=True)
class Columns:
    """How a table's columns map to a record's fields.

    Attributes:
      names: Field (`items`, `id`, `group`, `split`) to the column that holds it.
      separator: What separates the values of a list in one CSV cell.
      categorical: CSV columns to take as strings although they look like numbers.
      numerical: CSV columns to take as numbers; a cell that is none is refused.
      multi_valued: CSV columns that hold lists of strings.
      history: Columns that hold lists of items; only in CSV does it matter to read them.
    """

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    separator: str = "|"
    categorical: tuple[str, ...] = ()
    numerical: tuple[str, ...] = ()
    multi_valued: tuple[str, ...] = ()
    history: tuple[str, ...] = ()

    @property
    def kinds(self) -> dict[str, str]:
        """CSV column to the kind that was given for it, by the flag's name."""
        named = ("categorical", "numerical", "multi_valued")
        return {column: kind for kind in named for column in getattr(self, kind)}


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
    path = pathlib.Path(path).expanduser()
    validator, bad_rows = Validator(kind), BadRows(path, skip_bad_rows)
    records = []
    for line, row in rows(path, columns or Columns()):
        try:
            records.append(validator(row() if callable(row) else row, line))
        except RowError as error:
            bad_rows.add(line, error)
    if not records:
        raise UserError(f"{path}: no records; give one JSON object a line with a list 'items'")
    return records, bad_rows.found


class BadRows:
    """The bad rows of a file: as many as may be left out are kept, the next one is raised."""

    def __init__(self, path: pathlib.Path, most: int) -> None:
        self._path, self._most = path, most
        self.found: list[str] = []

    def add(self, line: int, error: UserError) -> None:
        """Raises `UserError` with the row's place where no more may be left out."""
        message = f"{self._path}:{line}: {error}"
        if len(self.found) >= self._most:
            hint = f" (after {self._most} skipped rows)" if self._most else ""
            raise UserError(message + hint) from None
        self.found.append(message)


def rows(path: pathlib.Path, columns: Columns) -> Iterator[tuple[int, Any]]:
    """A file's rows with their lines, not validated; a row is a value, or a call that makes it.

    Raises:
      UserError: the file is not readable, or from the call, as `RowError`, a row.
    """
    name = path.name.lower()
    try:
        if name.endswith(_CSV):
            yield from _csv(path, columns)
        elif columns.kinds:
            raise UserError(f"--{min(columns.kinds.values())} is for CSV; {path} is not")
        elif name.endswith(_JSON_LINES):
            yield from _json_lines(path)
        elif name.endswith(".parquet"):
            yield from _parquet(path, columns)
        else:
            raise UserError(
                f"{path}: unknown format; use .jsonl or .csv (or either with .gz), or .parquet"
            )
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except EOFError:
        raise UserError(f"{path}: the gzip file is truncated; copy it again") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; convert it to UTF-8") from None
    except (zlib.error, pyarrow.ArrowException, csv.Error, OSError, ValueError) as error:
        raise UserError(f"{path}: not readable ({str(error)[:200]})") from None


def _open(path: pathlib.Path) -> typing.BinaryIO:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def _json_lines(path: pathlib.Path) -> Iterator[tuple[int, Callable[[], Any]]]:
    with _open(path) as file, progress.bar(desc="reading", unit=" rows") as bar:
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
    with io.TextIOWrapper(_open(path), "utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        header = list(reader.fieldnames or ())
        field_of = _field_of(columns, header, path)
        _check_header(header, field_of, columns, path)
        bar = progress.bar(reader, desc="reading", unit=" rows")
        rows = [(reader.line_num, row) for row in bar]
    numerical = {
        name
        for name, field in field_of.items()
        if field == "context" and name not in (*columns.kinds, *columns.history)
        if all(_is_number(row[name]) for _, row in rows if row[name])
    }
    numerical.update(columns.numerical)
    for line, row in rows:
        yield line, lambda row=row: _csv_record(row, field_of, numerical, columns)


def _check_header(
    header: list[str], field_of: dict[str, str], columns: Columns, path: pathlib.Path
) -> None:
    """Refuses a table without items, a column given twice, and kinds of what is no feature."""
    if "items" not in field_of.values():
        raise UserError(f"{path}: no column 'items'; map one with --columns=items:COLUMN")
    for name in header:
        if header.count(name) > 1:
            raise UserError(f"{path}: two columns are called {shown(name)}; rename one")
    features = [name for name, field in field_of.items() if field == "context"]
    for name, kind in columns.kinds.items():
        if name not in features:
            raise UserError(
                f"--{kind} names {shown(name)}; the context's columns are: "
                f"{', '.join(features)}"
            )
    if not columns.separator:
        raise UserError("--separator is empty; give what stands between the values of a list")


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
        elif name in columns.multi_valued or name in columns.history:
            record["context"][name] = parts or None
        elif cell and name in numerical and not _is_number(cell):
            raise RowError(f"{shown(name)} is {shown(cell)}, not a number; empty means missing")
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
                        elif name == "context" and isinstance(value, dict | None):
                            record["context"].update(value or {})
                        else:
                            record["context"][name] = value
                    yield line, record
