"""Tables of plain text, and the same for Markdown, HTML, LaTeX and a terminal."""

import dataclasses
import html
import re
import textwrap
import unicodedata

from cbert.evaluation.compare import align

PLUS_MINUS = " ± "
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
    "×": r"$\times$",
}


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells of plain text, the first column of names.

    Attributes:
      caption: What is shown; says what each ± is over.
      head: Column names.
      rows: As long as the head each.
      rules: Rows that a line goes before.
      words: Columns of words, set to the left like the first.
    """

    caption: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    rules: tuple[int, ...] = ()
    words: tuple[int, ...] = ()


def clean(text: str) -> str:
    """One line without control or direction characters, whatever a name holds."""
    shown = "".join(
        "�" if unicodedata.category(char) in ("Cc", "Cf", "Cs") and not char.isspace() else char
        for char in text
    )
    return " ".join(shown.split())


def markdown_text(text: str) -> str:
    return "".join(_MARKDOWN.get(char, char) for char in clean(text))


def latex_text(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in clean(text))


def html_text(text: str) -> str:
    return html.escape(clean(text))


def to_markdown(table: Table) -> str:
    """The caption, then a pipe table."""
    marks = ["---" if _is_words(table, place) else "---:" for place in range(len(table.head))]
    rows = [[markdown_text(cell) for cell in row] for row in (table.head, *table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in (rows[0], marks, *rows[1:])]
    return f"{markdown_text(table.caption)}\n\n" + "\n".join(lines)


def to_latex(table: Table, label: str) -> str:
    """A `table` for the package booktabs; numbers align where a standard error is absent."""
    columns = "".join("l" if _is_words(table, n) else "r" for n in range(len(table.head)))
    lines = [" & ".join(latex_text(cell) for cell in table.head), r"\midrule"]
    for place, row in enumerate(table.rows):
        if place in table.rules:
            lines.append(r"\midrule")
        cells = (_latex_cell(table, n, cell) for n, cell in enumerate(row))
        lines.append(" & ".join(cells))
    body = "\n".join(line if line.startswith("\\midrule") else f"{line} \\\\" for line in lines)
    return (
        "% Needs \\usepackage{booktabs}, and \\usepackage[landscape]{geometry} for its width.\n"
        "\\begin{table}\n\\centering\n\\footnotesize\n\\setlength{\\tabcolsep}{3pt}\n"
        f"\\caption{{{latex_text(table.caption)}}}\n\\label{{tab:{label}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _latex_cell(table: Table, column: int, cell: str) -> str:
    error = _widest_error(table, column)
    absent = error and cell and PLUS_MINUS not in cell
    return latex_text(cell) + (
        f"\\phantom{{{latex_text(PLUS_MINUS + error)}}}" if absent else ""
    )


def to_html(table: Table) -> str:
    """A figure that scrolls sideways where it does not fit."""
    head = "".join(
        f"<th scope=col{_html_kind(table, n)}>{html_text(cell)}</th>"
        for n, cell in enumerate(table.head)
    )
    rows = []
    for place, (name, *cells) in enumerate(table.rows):
        text = "".join(
            f"<td{_html_kind(table, n)}>{_html_cell(table, n, cell)}</td>"
            for n, cell in enumerate(cells, 1)
        )
        rule = " class=rule" if place in table.rules else ""
        rows.append(f"<tr{rule}><th scope=row class=word>{html_text(name)}</th>{text}</tr>")
    body = "\n".join(rows)
    return (
        f"<figure class=table><figcaption>{html_text(table.caption)}</figcaption>"
        f"<div class=scroll tabindex=0><table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div></figure>"
    )


def _html_kind(table: Table, column: int) -> str:
    return " class=word" if _is_words(table, column) else ""


def _html_cell(table: Table, column: int, cell: str) -> str:
    """The standard error is as wide in every row, so that numbers stand under each other."""
    widest = _widest_error(table, column)
    if not _is_words(table, column):
        cell = _MINUS.sub("−", cell)
    if not widest:
        return html_text(cell)
    value, _, error = cell.partition(PLUS_MINUS)
    shown = f"±&nbsp;{html_text(error)}" if error else ""
    width = len(widest) + 1.5
    return f"{html_text(value)}<span class=error style='width:{width}ch'>{shown}</span>"


def _is_words(table: Table, column: int) -> bool:
    return column == 0 or column in table.words


def _widest_error(table: Table, column: int) -> str:
    errors = [row[column].partition(PLUS_MINUS)[2] for row in table.rows]
    return max(errors, key=len)


def to_terminal(table: Table) -> str:
    """The caption, and aligned columns; a cell without a standard error keeps its place."""
    rows = []
    for row in table.rows:
        cells = []
        for column, cell in enumerate(row):
            error = _widest_error(table, column)
            absent = error and PLUS_MINUS not in cell
            cells.append(clean(cell) + " " * len(PLUS_MINUS + error) * bool(absent))
        rows.append(cells)
    caption = textwrap.fill(clean(table.caption), 96)
    return f"{caption}\n\n{align([list(table.head), *rows])}"
