"""The rows of JSON files: an object a line, or one list of objects."""

import functools
import io
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from cbert import progress
from cbert.data import tables
from cbert.data.tables import MAX_ROW, Columns
from cbert.errors import UserError, shown

_PIECE = 2**20  # Characters of a list that are read at once.
_SPACES = re.compile(r"[ \t\r\n]*")
_LONGEST_CUT = 12  # The longest sign but strings that the end of a piece can cut: an escape.


def rows(path: pathlib.Path, columns: Columns) -> Iterator[tuple[int, Callable[[], Any]]]:
    """The rows with their lines, or of a list with their numbers; a call makes a row.

    Raises:
      UserError: the file is not readable, or from the call, a row.
    """
    columns.check_names()
    seen: set[str] = set()  # The names that were mapped in some row.
    with tables.open_binary(path) as file, progress.bar(desc="reading", unit=" rows") as bar:
        for number, content in (_elements if _is_list(file) else _lines)(file, path):
            bar.update()
            yield number, functools.partial(_row, content, columns.names, seen)
    for field, name in columns.names.items():
        if name not in seen:
            raise UserError(
                f"{path}: no row has {shown(name)}, which columns takes as {shown(field)}; "
                "correct the name"
            )


def _is_list(file: Any) -> bool:
    """Whether the file begins with a bracket; nothing is read."""
    return file.peek(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def _lines(file: BinaryIO, path: pathlib.Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers."""
    line = 0
    while text := file.readline(MAX_ROW + 1):
        line += 1
        if len(text) > MAX_ROW:
            raise tables.too_large(path, line)
        if text.strip():
            yield line, text


def _row(content: Any, names: Mapping[str, str], seen: set[str]) -> Any:
    """A row, from a line or an element, whose values stand under the names of their fields."""
    row = _parse(content) if isinstance(content, bytes) else content
    if not names or not isinstance(row, dict):
        return row
    mapped = {field: row[name] for field, name in names.items() if name in row}
    seen.update(name for name in names.values() if name in row)
    taken = {*names.values(), *names}  # A field that is mapped is that of the other name alone.
    return {**{name: value for name, value in row.items() if name not in taken}, **mapped}


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        start = text[:60].decode("utf-8", "replace").strip()
        raise UserError(
            f"not JSON ({str(error)[:80]}): {start!r}; write one object a line"
        ) from None


def _elements(file: BinaryIO, path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """The elements of a list with their numbers from 1, without the whole list in memory."""
    reader = _ListReader(file, path)
    reader.next_sign()
    number, sign = 0, "," if reader.peek() != "]" else reader.next_sign()
    while sign == ",":
        number += 1
        yield number, reader.element(number)
        sign = reader.next_sign()
    if sign != "]":
        what = f"{sign!r} after this record" if sign else "the file ends within the list"
        raise UserError(f"{path}:{number}: {what}; put a comma between two and ] at the end")
    if reader.peek():
        raise UserError(
            f"{path}: {reader.peek()!r} after the end of the list; a file has one list, or an "
            "object a line"
        )


class _ListReader:
    """Reads a file of one list in pieces, of which the one that is needed is in memory."""

    def __init__(self, file: BinaryIO, path: pathlib.Path) -> None:
        self._text, self._path = io.TextIOWrapper(file, encoding="utf-8-sig"), path
        self._piece, self._at = "", 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is no space; "" at the end of the file."""
        while True:
            spaces = _SPACES.match(self._piece, self._at)
            self._at = spaces.end() if spaces else self._at
            if self._at < len(self._piece) or not self._read():
                return self._piece[self._at : self._at + 1]

    def next_sign(self) -> str:
        """The same, after which the file is read on."""
        sign = self.peek()
        self._at += len(sign)
        return sign

    def element(self, number: int) -> Any:
        """The value that follows; raises `UserError` where there is none."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._piece, self._at)
            except json.JSONDecodeError as error:
                if self._is_cut(error):
                    if len(self._piece) - self._at > MAX_ROW:
                        raise tables.too_large(self._path, number) from None
                    if self._read():
                        continue
                raise self._not_json(number, error.msg) from None
            except RecursionError as error:
                raise self._not_json(number, str(error)) from None
            self._at = end
            return value

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the rest of the element may follow in the next piece."""
        near_end = error.pos >= len(self._piece) - _LONGEST_CUT
        return near_end or error.msg.startswith("Unterminated string")

    def _read(self) -> bool:
        """Reads on, and keeps what is not used; False at the end of the file."""
        rest = self._piece[self._at :]
        read = self._text.read(max(_PIECE, len(rest)))
        self._piece, self._at = rest + read, 0
        return bool(read)

    def _not_json(self, number: int, why: str) -> UserError:
        start = self._piece[self._at : self._at + 60]
        return UserError(
            f"{self._path}:{number}: not JSON ({why[:80]}): {start!r}; each record of a list "
            "must be one object"
        )
