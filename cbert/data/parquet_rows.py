"""The rows of a Parquet file, as the objects that a line of JSON holds."""

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from cbert import progress
from cbert.data.tables import MAX_ROW, Columns, check_unique, field_of_column, too_large
from cbert.errors import UserError, shown

_INDEX = re.compile(r"__index_level_\d+__")  # What pandas calls an index that has no name.
# A month, say, which is stored as a whole number, and what `pandas.cut` gives.
_OF_PANDAS = ("pandas.period", "pandas.interval")
_ROWS = 32  # Few rows are decoded at once, because a long list may unpack from a few bytes.


def rows(path: pathlib.Path, columns: Columns) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a Parquet file; dates and times become text, and decimals numbers."""
    _register_types_of_pandas(path, columns)
    texts = _texts(path)
    with (
        pyarrow.parquet.ParquetFile(path, read_dictionary=texts, buffer_size=2**20) as file,
        progress.bar(desc="reading", unit=" rows") as bar,
    ):
        names = [name for name in file.schema_arrow.names if not _INDEX.fullmatch(name)]
        field_of, columns = _mapped(file.schema_arrow, names, columns, path)
        dropped = [
            name for name in names if field_of[name] == "context" and name in columns.dropped
        ]
        read = [name for name in names if name not in dropped]
        line = 0
        for batch in file.iter_batches(_ROWS, columns=read):
            for row in _objects(_with_plain_types(batch), path, line):
                line += 1
                bar.update()
                yield line, _record(row | dict.fromkeys(dropped), field_of, columns)


def _register_types_of_pandas(path: pathlib.Path, columns: Columns) -> None:
    """Lets Arrow know periods and intervals, else it reads a whole number or a struct.

    Raises:
      UserError: a column that is not dropped has such a type, and pandas is not installed.
    """
    for field in pyarrow.parquet.read_schema(path):
        kind = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
        if kind in _OF_PANDAS and field.name not in columns.dropped:
            try:
                import pandas  # It belongs to an optional extra.
            except ImportError:
                raise UserError(
                    f"{path}: column {shown(field.name)} is of the type {kind}, which only "
                    "pandas can read; install pandas, or write the column as text "
                    "(pandas: .astype(str))"
                ) from None
            pyarrow.array(pandas.PeriodIndex([], freq="M"))  # This registers both types.
            return


def _texts(path: pathlib.Path) -> list[str]:
    """The columns of text that can stay as they are stored until their size is known."""
    with pyarrow.parquet.ParquetFile(path) as file:
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
        # Of these, which Spark and DuckDB may write, Arrow cannot make dictionaries.
        delta = {c.path_in_schema for c in chunks if "DELTA" in " ".join(c.encodings)}
        return [
            column.path
            for column in map(file.schema.column, range(len(file.schema)))
            if column.physical_type == "BYTE_ARRAY"
            and column.logical_type.type != "DECIMAL"
            and column.path not in delta
        ]


def of_table(table: pyarrow.Table, columns: Columns, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a table in memory; `name` is what errors call it."""
    path = pathlib.Path(name)
    field_of, columns = _mapped(table.schema, table.column_names, columns, path)
    for batch in table.to_batches(_ROWS):
        for row in _with_plain_types(batch).to_pylist():
            yield _record(row, field_of, columns)


def _mapped(
    schema: pyarrow.Schema, names: list[str], columns: Columns, path: pathlib.Path
) -> tuple[dict[str, str], Columns]:
    """What each column stands for, and the columns with the kinds of a schema; checks both."""
    field_of = field_of_column(columns, names, path)
    features = _context_names(schema, field_of)
    check_unique(features, path)
    columns.check(field_of | dict.fromkeys(features, "context"), path)
    return field_of, columns.completed(features)


def _context_names(schema: pyarrow.Schema, field_of: dict[str, str]) -> list[str]:
    """The features' names: a struct called `context` holds several."""
    names = []
    for field in schema:
        if field.name == "context" and pyarrow.types.is_struct(field.type):
            names += [inner.name for inner in field.type]
        elif field_of.get(field.name) == "context":
            names.append(field.name)
    return names


def _with_plain_types(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Decimals become numbers, and times text: Python has no nanoseconds or year 10 000."""
    for index, field in enumerate(batch.schema):
        column = _with_text_of_pandas(batch.column(index))
        column = column.cast(_plain_type(column.type))
        if column.type != field.type:
            batch = batch.set_column(index, field.name, column)
    return batch


def _with_text_of_pandas(column: pyarrow.Array) -> pyarrow.Array:
    """Periods and intervals, or categories of them, as the text that pandas shows."""
    if pyarrow.types.is_dictionary(column.type):
        values = _with_text_of_pandas(column.dictionary)
        return pyarrow.DictionaryArray.from_arrays(column.indices, values)
    if getattr(column.type, "extension_name", "") not in _OF_PANDAS:
        return column
    values = column.to_pandas()
    return pyarrow.array(values.astype(str).where(values.notna(), None), pyarrow.string())


def _plain_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    if pyarrow.types.is_temporal(kind):
        return pyarrow.string()
    if pyarrow.types.is_decimal(kind):
        return pyarrow.float64()
    if pyarrow.types.is_dictionary(kind):  # A category of pandas.
        plain = _plain_type(kind.value_type)
        return kind if plain == kind.value_type else plain
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pyarrow.types.is_large_list(kind):
        return pyarrow.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([f.with_type(_plain_type(f.type)) for f in kind])
    return kind


def _objects(
    batch: pyarrow.RecordBatch, path: pathlib.Path, first: int
) -> Iterator[dict[str, Any]]:
    """The rows as dictionaries, never more at once than the limit allows."""
    if sum(map(_unpacked_size, batch.columns)) <= MAX_ROW:
        yield from batch.to_pylist()
    elif batch.num_rows == 1:
        raise too_large(path, first + 1)
    else:
        half = batch.num_rows // 2
        yield from _objects(batch.slice(0, half), path, first)
        yield from _objects(batch.slice(half), path, first + half)


def _unpacked_size(array: pyarrow.Array) -> int:
    """Bytes that an array takes once every value stands on its own."""
    kind = array.type
    if pyarrow.types.is_dictionary(kind):
        sizes = pyarrow.compute.binary_length(array.dictionary).take(array.indices)
        return pyarrow.compute.sum(sizes).as_py() or 0
    if pyarrow.types.is_struct(kind):
        return sum(map(_unpacked_size, array.flatten()))
    if pyarrow.types.is_map(kind):
        return 8 * len(array) + _unpacked_size(array.keys) + _unpacked_size(array.items)
    if isinstance(array, pyarrow.ListArray | pyarrow.LargeListArray):
        return 8 * len(array) + _unpacked_size(array.flatten())
    return array.nbytes


def _record(row: dict[str, Any], field_of: dict[str, str], columns: Columns) -> dict[str, Any]:
    record: dict[str, Any] = {}
    context: dict[str, Any] = {}
    for name, value in row.items():
        field = field_of[name]
        if field != "context":
            is_name = field == "items" or (field == "label" and name in columns.categorical)
            record[field] = _names(value) if is_name else _whole(value)
        elif name == "context" and isinstance(value, dict | None):
            context.update(value or {})
        else:
            context[name] = value
    start = record.pop("answer_start", None)
    if isinstance(record.get("answer"), str) and start is not None:
        record["answer"] = {"text": record["answer"], "start": start}
    if any(value is not None or name in columns.dropped for name, value in context.items()):
        named = (*columns.history, *columns.categorical)
        record["context"] = {
            name: _names(value) if name in named else value for name, value in context.items()
        }
    return record


def _names(value: Any) -> Any:
    """A value, or a list of them, where whole numbers are names: 3 and 3.0 are "3"."""
    if type(value) is list:
        return [_names(one) for one in value]
    value = _whole(value)
    return str(value) if type(value) is int else value


def _whole(value: Any) -> Any:
    """3.0 as 3: pandas writes whole numbers so in a column where some are missing."""
    return int(value) if type(value) is float and value.is_integer() else value
