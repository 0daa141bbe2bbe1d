"""Which columns of a CSV file are numerical: it has no kinds of its own."""

import dataclasses
import math
import pathlib
from collections.abc import Iterable

from cbert.data.tables import Columns
from cbert.errors import shown, warn

FEW_WORDS = 3  # So many different cells may stand for missing numbers.


@dataclasses.dataclass
class _Seen:
    """What the cells of a column look like.

    Attributes:
      numbers: How many are numbers.
      words: Those that are not.
      with_comma: One that is a number with a comma in it.
    """

    numbers: int = 0
    words: set[str] = dataclasses.field(default_factory=set)
    with_comma: str = ""

    def add(self, cell: str) -> None:
        if is_number(cell):
            self.numbers += 1
        elif is_number(cell.replace(",", "")):
            self.with_comma = self.with_comma or cell
        else:
            self.words.add(cell)


def numerical(
    rows: Iterable[tuple[int, list[str]]],
    path: pathlib.Path,
    header: list[str],
    field_of: dict[str, str],
    columns: Columns,
) -> set[str]:
    """The columns that were given as numerical, and those whose cells all look like numbers.

    Args:
      rows: The line and the cells of each row below the header.
      path: The file, for warnings.
      header: The names of the columns.
      field_of: What a column stands for, by its name.
      columns: What was said of the columns.
    """
    # Queries have only features of a schema; a label beside them is not read.
    looked_at = ("context",) if columns.of_schema_only else ("context", "label")
    seen = {
        index: _Seen()
        for index, name in enumerate(header)
        if field_of[name] in looked_at
        and name not in (*columns.kinds, *columns.history, *columns.dropped)
    }
    for _, cells in rows:
        if not seen:
            break
        if len(cells) != len(header):
            continue
        for index in [index for index in seen if cells[index]]:
            seen[index].add(cells[index])
            if len(seen[index].words) > FEW_WORDS:
                name = header[index]
                where = f"{path}: column {shown(name)}"
                _warn_of_lists(seen.pop(index), where, name, columns.separator)
    numerical = set(columns.numerical)
    for index, column in seen.items():
        name = header[index]
        if field_of[name] == "label":
            continue
        _warn_of_mixed(column, f"{path}: column {shown(name)}", name)
        if not column.words and not column.with_comma:
            numerical.add(name)
    return numerical


def _warn_of_mixed(column: _Seen, where: str, name: str) -> None:
    """Warns of a column that looks numerical and is not."""
    if column.words and column.numbers:
        warn(
            f"{where} holds numbers and {', '.join(map(shown, sorted(column.words)))}, so that "
            "it is categorical; leave a cell empty where the value is missing"
        )
    elif column.with_comma and not column.words:
        warn(
            f"{where} holds numbers with commas, such as {shown(column.with_comma)}, so "
            "that it is categorical; write them with a point and without thousands separators, "
            f"or give categorical={name}"
        )


def _warn_of_lists(column: _Seen, where: str, name: str, separator: str) -> None:
    """Warns of a column whose cells look like lists, which only its reader can say."""
    lists = sorted(word for word in column.words if separator in word.strip(separator))
    if 2 * len(lists) >= len(column.words):
        warn(
            f"{where} holds {shown(separator)} within cells, such as {shown(lists[0])}, and "
            f"each is one value; where these are lists, give multi_valued={name}"
        )


def is_number(text: str) -> bool:
    """Whether a cell is a finite number as Python writes it."""
    if "_" in text or not text.isascii():  # Python's float reads 1_2 as 12.
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
