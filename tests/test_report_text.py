"""The sentences of a report, and names that hold markup."""

import re
import sys

import pytest

from cbert.errors import UserError
from cbert.report import report_data, tables, writers
from cbert.report.sections import Section
from tests.report_runs import queries, write_run


def test_text_is_escaped():
    text = "<b>a</b> | x_1 & 50% \\ ~^ $#{}\n*[]`\u202eevil"
    section = Section(text, [text], [text], [tables.Table(text, ("", text), [(text, text)])])
    page = writers.page(text, [section], {})
    escaped = "&lt;b&gt;a&lt;/b&gt; | x_1 &amp; 50% \\ ~^ $#{} *[]`\ufffdevil"
    # Title, heading, section heading, paragraph, point, caption, column name, row name, cell.
    assert page.count(escaped) == 9
    assert "<b>" not in page
    assert "\u202e" not in page
    assert tables.markdown_text(text) == (
        r"&lt;b&gt;a&lt;/b&gt; \| x\_1 &amp; 50% \\ \~^ \$\#{} \*\[\]\`" + "\ufffdevil"
    )
    # Joiners belong to words.
    assert tables.clean("\u0645\u06cc\u200c\u062e\u0648") == "\u0645\u06cc\u200c\u062e\u0648"
    assert tables.latex_text("a_b & 5% \\ ± {$}") == (
        r"a\_b \& 5\% \textbackslash{} $\pm$ \{\$\}"
    )


def test_a_table_of_many_rows_is_read_a_few_times():
    """A reading for each cell would take minutes where many variants are compared."""
    readings = []

    class Rows(list):
        def __iter__(self):
            readings.append(self)
            return super().__iter__()

    rows = Rows((f"pair {number}", f"{number} ± 0.5") for number in range(300))
    table = tables.Table("caption", ("pair", "difference"), rows)
    assert "pair 299   299 ± 0.5" in tables.to_terminal(table)
    assert r"pair 299 & 299 $\pm$ 0.5 \\" in tables.to_latex(table, "label")
    assert "299<span" in writers.page("title", [Section("section", tables=[table])], {})
    assert len(readings) < 10


@pytest.mark.parametrize("library", ["jinja2", "matplotlib", "pandas", "tabulate"])
def test_without_a_library_one_line_says_what_to_install(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=r'pip install "\.\[report\]"'):
        writers.check_libraries()


def test_one_seed_has_no_standard_error_and_says_so(tmp_path):
    write_run(tmp_path, "none", 0)
    write_run(tmp_path, "gs", 0, gain=0.4, bayes_optimal=False)
    data = report_data.load(tmp_path, "test", "none")
    shown = writers.write(data)
    assert re.search(
        r"^gs( +[\d.]+){4} +[-\d.]+ +\d,\d+ +one seed only( +[\d.]+){2}$",
        shown,
        re.M,
    )
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "one seed only" in markdown
    assert "Nothing is missing: every variant has the same seeds" in markdown
    assert "It was not measured: evaluate the runs with feature importance, if" in markdown
    first = {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()}
    writers.write(data)
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()}


def test_of_one_group_no_interval_is_shown(tmp_path):
    asked = {**queries(), "group": ["a"] * len(queries()["id"])}
    for method in ("none", "gs"):
        write_run(tmp_path, method, 0, asked_queries=asked)
    shown = writers.write(report_data.load(tmp_path, "test"))
    row = re.escape("none → gs") + r" +[-+][\d.]+ +groups, one seed( +[\d.]+){3} +too few"
    assert re.match(row, shown.splitlines()[-1])
    assert "inf" not in (tmp_path / "report" / "report.tex").read_text()


def test_a_baseline_that_is_better_is_named_and_an_optimum_is_not(tmp_path):
    """The gains of popularity and of popularity given the context are -1 and -0.5."""
    write_run(tmp_path, "none", 0)
    write_run(tmp_path, "c", 0, gain=-0.7)
    writers.write(report_data.load(tmp_path, "test", "none"))
    markdown = (tmp_path / "report" / "report.md").read_text()
    better = [line for line in markdown.splitlines() if "has a better cross-entropy" in line]
    assert better == ["popularity given context has a better cross-entropy than c."]
