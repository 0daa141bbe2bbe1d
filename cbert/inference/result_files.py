"""Files of results, written block by block: JSON Lines, or a table with a row a result."""

import contextlib
import csv
import dataclasses
import json
import pathlib
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet

from cbert.inference.queries import Jsonable

# Takes for each result what it begins with, `line` and perhaps `id`, and the results.
Write = Callable[[Sequence[dict[str, Any]], Sequence[Jsonable]], None]
# What Parquet makes of a field's type.
_PLAIN: dict[type, pyarrow.DataType] = {
    str: pyarrow.string(),
    bool: pyarrow.bool_(),
    int: pyarrow.int64(),
    float: pyarrow.float64(),
}


def writer(path: pathlib.Path, ending: str) -> contextlib.AbstractContextManager[Write]:
    """What writes results to a file, in the form that an ending names.

    The columns of a table are `line`, `id`, which is empty where a query has none, and the
    fields of a result. Parquet has lists, structs and maps as they are, and ids as text; in a
    cell of CSV they are JSON.

    Args:
      path: The file.
      ending: `.csv`, `.parquet`, or another one for JSON Lines.
    """
    return {".csv": _csv, ".parquet": _parquet}.get(ending.lower(), _json_lines)(path)


@contextlib.contextmanager
def _json_lines(path: pathlib.Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:

        def write(heads: Sequence[dict[str, Any]], results: Sequence[Jsonable]) -> None:
            for head, result in zip(heads, results, strict=True):
                line = {**head, **result.to_dict()}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

        yield write


@contextlib.contextmanager
def _csv(path: pathlib.Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        header: list[str] = []

        def write(heads: Sequence[dict[str, Any]], results: Sequence[Jsonable]) -> None:
            for head, result in zip(heads, results, strict=True):
                row = {"line": None, "id": None, **head, **result.to_dict()}
                if not header:
                    header.extend(row)
                    table.writerow(header)
                table.writerow(map(_cell, row.values()))

        yield write


def _cell(value: Any) -> str:
    """A string as it is, nothing for None, and JSON for all else."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def _parquet(path: pathlib.Path) -> Iterator[Write]:
    with contextlib.ExitStack() as stack:
        opened: list[pyarrow.parquet.ParquetWriter] = []

        def write(heads: Sequence[dict[str, Any]], results: Sequence[Jsonable]) -> None:
            schema = _schema(type(results[0]))
            if not opened:
                table = pyarrow.parquet.ParquetWriter(path, schema)
                opened.append(stack.enter_context(table))
            rows = []
            for head, result in zip(heads, results, strict=True):
                name = None if head.get("id") is None else str(head["id"])
                rows.append({**head, "id": name, **result.to_dict()})
            opened[0].write_table(pyarrow.Table.from_pylist(rows, schema))

        yield write


def _schema(result: type) -> pyarrow.Schema:
    """The columns of a table of results, whose types are those of the class's fields."""
    head = {"line": pyarrow.int64(), "id": pyarrow.string()}
    return pyarrow.schema({**head, **{one.name: one.type for one in _type(result)}})


def _type(kind: Any) -> pyarrow.DataType:
    """The type that holds the values of a type of Python, which may be None."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        (kind,) = (one for one in arguments if one is not type(None))
        return _type(kind)
    if origin is typing.Literal:
        return _PLAIN[type(arguments[0])]
    if origin is list:
        return pyarrow.list_(_type(arguments[0]))
    if origin is dict:
        return pyarrow.map_(*map(_type, arguments))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = [(one.name, _type(hints[one.name])) for one in dataclasses.fields(kind)]
        return pyarrow.struct(fields)
    return _PLAIN[kind]
