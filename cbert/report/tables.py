"""Tables of plain text, and the same as Markdown, LaTeX and terminal text.

pandas writes Markdown, LaTeX and CSV. The escaping is here because names may hold any
character, and pandas leaves `|` in Markdown and `<` in LaTeX as they are. The template writes
the tables of the HTML page.
"""

import dataclasses
import functools
import re
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cbert.text_table import align

if TYPE_CHECKING:
    import pandas

PLUS_MINUS = " ± "
_NARROW = 6  # Columns that fit onto a page.
_MINUS = re.compile(r"(?<![^\[ ])-(?=\d)")

_MARKDOWN = {char: f"\\{char}" for char in "\\`*_[]#|~$"} | {
    "<": "&lt;",
    ">": "&gt;",
    "&": "&amp;",
}
_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "−": "$-$",
    "→": r"$\to$",
    "×": r"$\times$",
}


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells of plain text; the first column holds names.

    Attributes:
      caption: What the table shows, with what each ± is over.
      head: The column names.
      rows: The cells, as many in each row as there are column names.
      rules: The indices of the rows that a line is drawn above.
      words: The indices of columns, beside the first, that hold words and not numbers.
      brief: What a paper's caption says; empty where it is the same.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    rules: Sequence[int] = ()
    words: Sequence[int] = ()
    brief: str = ""

    def is_words(self, column: int) -> bool:
        """Returns whether a column holds words, which are aligned to the left."""
        return column == 0 or column in self.words

    def widest_error(self, column: int) -> str:
        """The longest standard error in a column; empty where it holds none."""
        return self._widest_errors[column]

    @functools.cached_property
    def _widest_errors(self) -> list[str]:
        # Writers ask for every cell, and the pairs of many variants are thousands of rows.
        columns = zip(*self.rows, strict=True)
        return [max((cell.partition(PLUS_MINUS)[2] for cell in c), key=len) for c in columns]

    def lacks_error(self, column: int, cell: str) -> bool:
        """Returns whether a cell has no standard error in a column where others have one."""
        return bool(self.widest_error(column)) and PLUS_MINUS not in cell

    def frame(self, escape: Callable[[str], str]) -> "pandas.DataFrame":
        """The cells as a data frame, each of them escaped."""
        rows = [[escape(cell) for cell in row] for row in self.rows]
        return frame([escape(cell) for cell in self.head], rows)


def frame(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> "pandas.DataFrame":
    """A data frame whose cells stay as they are."""
    import pandas  # It belongs to an optional extra.

    return pandas.DataFrame([*map(list, rows)], columns=[*columns], dtype=object)


def clean(text: str) -> str:
    """One line without control or direction characters, whatever a name holds."""
    return " ".join("".join("�" if _is_control(char) else char for char in text).split())


def _is_control(char: str) -> bool:
    """Whether a character may change what stands around it; joiners belong to words."""
    is_format = unicodedata.category(char) in ("Cc", "Cf", "Cs")
    return is_format and not char.isspace() and char not in "\u200c\u200d"


def markdown_text(text: str) -> str:
    """The text for Markdown, cleaned and escaped."""
    return "".join(_MARKDOWN.get(char, char) for char in clean(text))


def latex_text(text: str) -> str:
    """The text for LaTeX, cleaned and escaped."""
    return "".join(_LATEX.get(char, char) for char in clean(text))


def minus_signs(text: str) -> str:
    """The text with the hyphens before numbers replaced by minus signs."""
    return _MINUS.sub("−", text)


def to_markdown(table: Table) -> str:
    """The caption, then a pipe table."""
    columns = range(len(table.head))
    grid = table.frame(markdown_text).to_markdown(
        index=False,
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["left" if table.is_words(column) else "right" for column in columns],
    )
    return f"{markdown_text(table.caption)}\n\n{grid}"


def to_latex(table: Table, label: str) -> str:
    """A `table` environment; numbers align where a standard error is absent.

    What its caption leaves out stands before it as a comment.
    """
    cells = table.frame(lambda text: latex_text(minus_signs(text)))
    for number, row in enumerate(table.rows):
        for column, cell in enumerate(row):
            if cell and table.lacks_error(column, cell):
                error = latex_text(PLUS_MINUS + table.widest_error(column))
                cells.iat[number, column] = f"{cells.iat[number, column]!s}\\phantom{{{error}}}"
    for number in (rule for rule in table.rules if 0 < rule < len(table.rows)):
        cells.iat[number, 0] = "\\midrule\n" + str(cells.iat[number, 0])
    size: Any = [
        {"selector": "footnotesize", "props": ":;"},
        {"selector": "setlength", "props": r":{\tabcolsep}{3pt};"},
    ]
    text = (
        cells.style.hide(axis="index")
        .set_table_styles(size)
        .to_latex(
            column_format="".join("rl"[table.is_words(n)] for n in range(len(table.head))),
            position_float="centering",
            hrules=True,
            caption=latex_text(table.brief or table.caption),
            label=f"tab:{label}",
        )
    )
    width = r", and \usepackage[landscape]{geometry} for its width"
    needs = r"This table needs \usepackage{booktabs}" + width * (len(table.head) > _NARROW)
    notes = [f"{needs}.", *textwrap.wrap(clean(table.caption), 94) * bool(table.brief)]
    return "\n".join(f"% {note}" for note in notes) + f"\n{text}"


def to_terminal(table: Table) -> str:
    """The caption, then aligned columns; a cell without a standard error leaves its space."""
    rows = []
    for row in table.rows:
        cells = []
        for column, cell in enumerate(row):
            space = len(PLUS_MINUS + table.widest_error(column))
            cells.append(clean(cell) + " " * space * table.lacks_error(column, cell))
        rows.append(cells)
    caption = textwrap.fill(clean(table.caption), 96)
    return f"{caption}\n\n{align([list(table.head), *rows])}"
