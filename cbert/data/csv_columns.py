"""Which columns of a CSV file are numerical: it has no kinds of its own."""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterable

from cbert.data.tables import Columns
from cbert.errors import shown, warn
from cbert.schema.values import is_number

FEW_WORDS = 3  # So many different cells may stand for missing numbers.
# A column with so many more words than numbers is one of words, and the rest need not be seen.
ENOUGH_WORDS = 1_000
_OTHER_SEPARATORS = frozenset(";,")
_FIRST_ROWS = 10_000  # So many show what stands between the values of lists.
_ZERO_FIRST = re.compile("0[0-9]+")


@dataclasses.dataclass
class _Seen:
    """What the cells of a column look like.

    Attributes:
      cells: How many there are that are not empty.
      numbers: How many are numbers.
      commas: How many are numbers with a comma in them.
      words: Those that are not, the first that differ, at most one more than `FEW_WORDS`.
      with_comma: The first number with a comma.
      with_zero: The first whole number with a zero before it, which a number does not keep.
    """

    cells: int = 0
    numbers: int = 0
    commas: int = 0
    words: dict[str, None] = dataclasses.field(default_factory=dict)
    with_comma: str = ""
    with_zero: str = ""

    def add(self, cell: str) -> None:
        cell = cell.strip()
        self.cells += 1
        if is_number(cell):
            self.numbers += 1
            if not self.with_zero and _ZERO_FIRST.fullmatch(cell):
                self.with_zero = cell
        elif is_number(cell.replace(",", "")):
            self.commas += 1
            self.with_comma = self.with_comma or cell
        elif len(self.words) <= FEW_WORDS:
            self.words[cell] = None

    def described_words(self) -> str:
        """How many cells are no numbers, and the first of them; empty where there is one."""
        bad = self.cells - self.numbers
        words = [*self.words, *filter(None, [self.with_comma])][:FEW_WORDS]
        return f" ({bad:,} cells are not: {', '.join(map(shown, words))})" if bad > 1 else ""

    @property
    def is_of_words(self) -> bool:
        """Whether there are so many words that no further cell makes it one of numbers."""
        more = self.cells - 2 * (self.numbers + self.commas)
        return more > ENOUGH_WORDS and len(self.words) > FEW_WORDS


def numerical(
    rows: Iterable[tuple[int, list[str]]],
    path: pathlib.Path,
    header: list[str],
    field_of: dict[str, str],
    columns: Columns,
) -> dict[str, str]:
    """The columns that were given as numerical, and those whose cells all look like numbers.

    With each stands what of its cells is no number, for the error of such a cell.

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
        if name in columns.numerical
        or (
            field_of[name] in looked_at
            and name not in (*columns.kinds, *columns.history, *columns.dropped)
        )
    }
    open_columns = set(seen)
    for _, cells in rows:
        if not open_columns:
            break
        if len(cells) != len(header):
            continue
        for index in [index for index in open_columns if not columns.is_missing(cells[index])]:
            seen[index].add(cells[index])
            if seen[index].is_of_words and header[index] not in columns.numerical:
                open_columns.remove(index)
    numerical = {}
    for index, column in seen.items():
        name = header[index]
        if name in columns.numerical:
            numerical[name] = column.described_words()
            continue
        where = f"{path}: column {shown(name)}"
        if _warn_of_lists(column, where, name, columns.separator) or field_of[name] == "label":
            continue
        _warn_of_mixed(column, where, name)
        if not column.words and not column.with_comma:
            numerical[name] = ""
            _warn_of_zeros(column, where, name)
    return numerical


def _warn_of_mixed(column: _Seen, where: str, name: str) -> None:
    """Warns of a column that looks numerical and is not."""
    few = len(column.words) <= FEW_WORDS
    numbers = column.numbers + column.commas
    if column.words and (2 * numbers > column.cells or (few and column.numbers)):
        percent = max(1, 100 * numbers // column.cells)
        words = list(map(shown, column.words))[:FEW_WORDS]
        warn(
            f"{where}: {percent} % of the cells are numbers; others are {', '.join(words)}"
            f"{'' if few else ', ...'}, so that it is categorical; give missing=WORD,WORD "
            f"for what stands for a missing value, or categorical={name} for names"
        )
    elif column.with_comma and not column.words:
        warn(
            f"{where} holds numbers with commas, such as {shown(column.with_comma)}, so "
            "that it is categorical; write them with a point and without thousands separators, "
            f"or give categorical={name}"
        )


def _warn_of_zeros(column: _Seen, where: str, name: str) -> None:
    """Warns of a numerical column that looks like one of codes."""
    if column.with_zero:
        warn(
            f"{where} holds numbers with zeros before them, such as {shown(column.with_zero)}, "
            f"which are lost; where they are codes, give categorical={name}, and where not, "
            f"give numerical={name}"
        )


def _warn_of_lists(column: _Seen, where: str, name: str, separator: str) -> bool:
    """Warns of a column whose cells look like lists, which only its reader can say."""
    lists = sorted(word for word in column.words if separator in word.strip(separator))
    warns = len(column.words) > FEW_WORDS and 2 * len(lists) >= len(column.words)
    if warns:
        warn(
            f"{where} holds {shown(separator)} within cells, such as {shown(lists[0])}, and "
            f"each is one value; where these are lists, give multi_valued={name}"
        )
    return warns


def warn_of_other_separators(
    rows: Iterable[tuple[int, list[str]]],
    path: pathlib.Path,
    header: list[str],
    columns: Columns,
) -> None:
    """Warns of a column of lists whose first cells lack the separator, and hold a `;` or `,`.

    Args:
      rows: The line and the cells of each row.
      path: The file, for warnings.
      header: The names of the columns.
      columns: What was said of the columns.
    """
    lists = (*columns.multi_valued, *columns.history)
    suspect = {index: "" for index, name in enumerate(header) if name in lists}
    for _, cells in itertools.islice(rows, _FIRST_ROWS if suspect else 0):
        for index in [index for index in suspect if index < len(cells)]:
            if columns.separator in cells[index]:
                del suspect[index]
            elif not suspect[index] and not _OTHER_SEPARATORS.isdisjoint(cells[index]):
                suspect[index] = cells[index]
        if not suspect:
            break
    for index, cell in suspect.items():
        if cell:
            warn(
                f"{path}: column {shown(header[index])} holds lists, and none of its first "
                f"cells holds {shown(columns.separator)}, so that {shown(cell)} is one value; "
                "separator says what stands between values"
            )
