"""Records that a Python program already holds: mappings, or the rows of a DataFrame."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow

from cbert.data import parquet_rows, tables
from cbert.data.records import Record
from cbert.data.row_errors import BadRows
from cbert.data.validator import REFUSE, Validator
from cbert.errors import UserError, one_line, shown
from cbert.schema import TEXT, Categorical, Feature
from cbert.schema.history import History
from cbert.schema.python_values import plain


def read(
    source: Any,
    kind: str,
    kinds: Mapping[str, str] | None = None,
    dropped: Collection[str] = (),
    target: str | None = None,
    repeats: str = REFUSE,
    of_schema: Mapping[str, str] | None = None,
    bad_rows: BadRows | None = None,
    features: Iterable[Feature] = (),
) -> Iterator[Record]:
    """Yields validated records.

    Args:
      source: An iterable of mappings with the fields of a record, see docs/data.md; or a pandas
        DataFrame, whose other columns are features of the context. Numbers and arrays of NumPy
        are taken as Python's, and NaN as missing.
      kind: `set`, `sequence` or `text`.
      kinds: Kind by feature, where it was given.
      dropped: Context features that may have any values.
      target: As for `readers.read`.
      repeats: As for `Validator`.
      of_schema: Feature to its kind by a schema.
      bad_rows: Takes the records that are not valid; by default the first one is raised.
      features: As for `Validator`.

    Raises:
      UserError: a record is not valid; it names its number, counted from 1, and the fix.
    """
    bad_rows = bad_rows or BadRows(None)
    validator = Validator(kind, dropped, target=target, repeats=repeats, features=features)
    empty = True
    for number, row in enumerate(_rows(source, kind, kinds or {}, dropped, of_schema or {}), 1):
        try:
            record = validator(_plain(row), number)
        except UserError as error:
            bad_rows.add(number, error)
            continue
        empty = False
        yield record
    if empty:
        raise UserError(f"there are no records{bad_rows.first()}; give at least one")
    validator.finish()


def _rows(
    source: Any,
    kind: str,
    kinds: Mapping[str, str],
    dropped: Collection[str],
    of_schema: Mapping[str, str],
) -> Iterable[Any]:
    if hasattr(source, "columns") and hasattr(source, "itertuples"):
        categorical, histories = (
            tuple(name for name, own in kinds.items() if own == wanted)
            for wanted in (Categorical.kind, History.kind)
        )
        columns = tables.Columns(
            categorical=categorical,
            history=histories,
            of_schema=of_schema,
            fields=tables.MAPPED_OF_TEXT if kind == TEXT else tables.MAPPED,
            dropped=tuple(dropped),
        )
        return _rows_of_frame(source, columns)
    if isinstance(source, Mapping | str) or not isinstance(source, Iterable):
        raise UserError(f"the records are {shown(source)}; give a list of mappings")
    return source


def _rows_of_frame(frame: Any, columns: tables.Columns) -> Iterator[dict[str, Any]]:
    """The rows of a DataFrame; raises `UserError` where Arrow cannot hold it."""
    for name in {*columns.dropped} & {*frame.columns}:
        frame = frame.assign(**{name: None})
    try:
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    except pyarrow.ArrowException as error:
        reason = one_line(error)
        raise UserError(
            f"the DataFrame has mixed types in a column ({reason}); give its values one "
            "type, and arrays as lists"
        ) from None
    except (OverflowError, ValueError, TypeError) as error:
        # A huge integer, a name twice, or a column of pandas' own, such as a sparse one.
        raise UserError(f"the DataFrame is not readable ({one_line(error)[:120]})") from None
    for name, field in zip(frame.columns, table.schema, strict=True):
        if pyarrow.types.is_list(field.type) and any(
            isinstance(value, set | frozenset) for value in frame[name]
        ):
            raise UserError(
                f"the DataFrame's {shown(name)} holds sets, whose order differs from "
                "process to process; give lists (pandas: .map(sorted))"
            )
    return parquet_rows.of_table(table, columns, "the DataFrame")


def _plain(row: Any, depth: int = 2) -> Any:
    """A row, and the mappings that are its fields, with plain values; one may hold itself."""
    if depth and isinstance(row, Mapping):
        return {name: _plain(value, depth - 1) for name, value in row.items()}
    return plain(row)
