"""The rows of a CSV file, as the objects that a line of JSON holds."""

import csv
import functools
import io
import pathlib
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

from cbert import progress
from cbert.data import csv_columns
from cbert.data.tables import MAX_ROW, Columns, field_of_column, open_binary, too_large
from cbert.errors import UserError, shown
from cbert.schema.values import is_number


class _RowLines:
    """A text file's lines for `csv.reader`, which may take several for one row."""

    def __init__(self, file: typing.TextIO, path: pathlib.Path) -> None:
        self._file, self._path = file, path
        self._line = 0
        self.first = 1  # The line in which the current row begins.
        self.size = 0  # The size of the current row; the reader of the row sets it to zero.

    def __iter__(self) -> "_RowLines":
        return self

    def __next__(self) -> str:
        text = self._file.readline(MAX_ROW + 1 - self.size)
        self._line += 1
        if not self.size:
            self.first = self._line
        self.size += len(text)
        if self.size > MAX_ROW:
            raise too_large(self._path, self.first, self._line)
        if not text:
            raise StopIteration
        return text


_QUOTED = re.compile(r'''(?<![^,;\t\r\n])"(?:[^"]|"")*"''')
_MOST_OF_HEADER = 2**16  # Characters that are looked at to see what stands between cells.


def _delimiter(path: pathlib.Path) -> str:
    """What stands between cells: a comma, unless the header has semicolons or tabs alone.

    In a `.tsv` it is a tab if the header has one, because names there may hold commas.
    """
    with io.TextIOWrapper(open_binary(path), "utf-8-sig", newline="") as file:
        start = _QUOTED.sub('""', file.read(_MOST_OF_HEADER))  # A name may have several lines.
    header = next((line for line in re.split(r"[\r\n]", start) if line.strip()), "")
    named = "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","
    return named if named in header else max(",;\t", key=header.count)


def _cells(path: pathlib.Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row that is not blank, the header first, with the row's first line."""
    csv.field_size_limit(MAX_ROW)
    with io.TextIOWrapper(open_binary(path), "utf-8-sig", newline="") as file:
        lines = _RowLines(file, path)
        # Not strict, a quote that is never closed would take the rows behind it into its cell.
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            for cells in reader:
                lines.size = 0
                if cells:
                    yield lines.first, cells
        except csv.Error as error:
            raise UserError(
                f"{path}:{lines.first}: {error}; quote cells that hold a quote, a comma or a "
                "line break, close each quote, and write one within a cell twice"
            ) from None


def rows(
    path: pathlib.Path, columns: Columns
) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    """The rows of a CSV file; it is read before, to see which columns are numbers."""
    delimiter = _delimiter(path)
    cells_of = _cells(path, delimiter)
    _, names = next(cells_of, (0, []))
    header = [name.strip() for name in names]
    if not header:
        raise UserError(f"{path}: the file is empty; give a header and rows below it")
    columns = columns.completed(header)
    field_of = field_of_column(columns, header, path)
    columns.check(field_of, path)
    if not columns.separator:
        raise UserError("separator is empty; give what stands between the values of a list")
    numerical = csv_columns.numerical(cells_of, path, header, field_of, columns)
    csv_columns.warn_of_other_separators(_cells(path, delimiter), path, header, columns)
    cells_of = _cells(path, delimiter)
    next(cells_of)
    for line, cells in progress.bar(cells_of, desc="reading", unit=" rows"):
        yield line, functools.partial(_record, cells, field_of, numerical, columns)


# What stands between the brackets of a list of strings, and of one of numbers.
_STRINGS = re.compile(r"""['"].*['"]""", re.DOTALL)
_NUMBERS = re.compile(r"-?[\d.][-+\d.,\seE]*")
_MAY_BE_LISTS = ("items", "words", "tags", "label", "context")
_TEXTS = ("text", "text_b", "answer")  # Spaces around them count where an answer has a start.


def _record(
    cells: list[str], field_of: dict[str, str], numerical: dict[str, str], columns: Columns
) -> dict[str, Any]:
    if len(cells) != len(field_of):
        raise UserError(
            f"the row has {'more' if len(cells) > len(field_of) else 'fewer'} cells than the "
            "header; quote cells that hold a comma"
        )
    record: dict[str, Any] = {}
    context: dict[str, Any] = {}
    for (name, field), cell in zip(field_of.items(), cells, strict=True):
        if field == "context" and name in columns.dropped:
            context[name] = None
            continue
        given, cell = cell, "" if columns.is_missing(cell) else cell
        if field in _MAY_BE_LISTS and _is_python_list(cell, field):
            raise UserError(
                f"column {shown(name)} has {shown(cell)}, a list as Python writes it; write "
                "Parquet, or the values with a separator between them"
            )
        if field in ("items", "words", "tags"):
            parts = _parts(cell, columns.separator)
            if parts and field != "items":  # A blank beside a tag would move all after it.
                parts = [part.strip() for part in cell.split(columns.separator)]
            record[field] = parts if parts or field == "items" else None
        elif field == "label" and given.strip() and not cell:
            record[field] = None  # Of lists of labels, an empty cell says that none holds.
        elif field == "label":
            record[field] = _label(name, cell, numerical, columns)
        elif field == "weight":
            record[field] = _number(name, cell) if cell else None
        elif field in _TEXTS:
            record[field] = cell or None
        elif field != "context":
            record[field] = cell.strip() or None
        elif name in columns.multi_valued or name in columns.history:
            context[name] = _parts(cell, columns.separator) or None
        elif cell:
            others = numerical.get(name)
            context[name] = _plain(cell) if others is None else _number(name, cell, others)
    if context:
        record["context"] = context
    return _with_answer(record) if "answer" in record else record


def _is_python_list(cell: str, field: str) -> bool:
    """Whether a cell is a list as Python writes it; a text may well be a number in brackets."""
    if cell[:1] != "[" or cell[-1:] != "]":
        return False
    inside = cell[1:-1].strip()
    numbers = field in ("items", "context") and _NUMBERS.fullmatch(inside)
    return not inside or bool(_STRINGS.fullmatch(inside) or numbers)


def _label(
    name: str, cell: str, numerical: dict[str, str], columns: Columns
) -> str | list[str] | float | None:
    """A label, which is a string unless its column was given another kind."""
    if name in columns.multi_valued:
        return _parts(cell, columns.separator)
    if not cell or name not in numerical:
        return _plain(cell) or None
    return _number(name, cell, numerical[name])


def _plain(cell: str) -> str:
    """A cell without spaces around it, and with the booleans of records."""
    cell = cell.strip()
    return cell.lower() if cell in ("True", "TRUE", "False", "FALSE") else cell


def _number(name: str, cell: str, others: str = "") -> float:
    """A cell's number; `others` says for the error which cells of the column are none."""
    if not is_number(cell):
        raise UserError(
            f"{shown(name)} is {shown(cell)}, not a number{others}; empty means missing, as "
            "WORD does with missing=WORD"
        )
    return float(cell)


def _with_answer(record: dict[str, Any]) -> dict[str, Any]:
    """The record with the answer's text and start in one object."""
    start = record.pop("answer_start", None)
    if record["answer"] is not None:
        # 8.0 is how pandas writes a column in which some are missing.
        whole = re.fullmatch(r"([0-9]{1,9})(\.0+)?", (start or "").strip())
        if not whole:
            raise UserError(
                f"'answer_start' is {shown(start)}; give the answer's first character; a "
                "column that holds no answer needs another name, or drop=answer"
            )
        record["answer"] = {"text": record["answer"], "start": int(whole[1])}
    return record


def _parts(cell: str, separator: str) -> list[str]:
    return [part.strip() for part in cell.split(separator) if part.strip()]
