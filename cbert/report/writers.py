"""The report as files: Markdown, LaTeX, CSV, and one HTML page that needs no other file."""

import base64
import importlib
import math
import pathlib

from cbert import files, progress
from cbert.data.records import VALIDATION
from cbert.errors import missing_extra
from cbert.report import plot_helpers, result_tables, sections, statistics, tables
from cbert.report.report_data import ReportData
from cbert.report.sections import Section
from cbert.report.statistics import Difference, Mean

TEMPLATES = pathlib.Path(__file__).parent / "templates"
# Plots that not every report has.
_OPTIONAL_PLOTS = (
    *("differences", "learning_curves", "reliability", "gain_by_visible_items"),
    *("gain_by_feature_*", "feature_importance", "attention_*"),
)


def check_libraries() -> None:
    """Raises `UserError` where a library of the extra `report` is not installed."""
    try:
        for name in ("jinja2", "matplotlib", "pandas", "tabulate"):
            importlib.import_module(name)
    except ImportError as error:
        raise missing_extra("the report", "report", error) from None


def write(data: ReportData) -> str:
    """Writes the report into its folder, each file whole.

    Returns:
      The main table and the first comparison as text for a terminal.
    """
    files.check_writable(data.folder)
    results, differences = statistics.results(data), statistics.pairs(data)
    title, content = sections.title(data), sections.make(data, results, differences)
    plots = [plot for section in content for plot in section.plots]
    bar = progress.bar(plots, desc="plotting", unit=" plots")
    images = {plot.name: plot_helpers.render(plot) for plot in bar}
    texts = {
        "report.md": markdown(title, content),
        "report.tex": latex(data, content[0].tables[0], differences),
        "results.csv": results_csv(data, results),
        "paired.csv": paired_csv(differences),
        "report.html": page(title, content, images),
    }
    _replace(
        data.folder,
        {name: text.encode("utf-8") for name, text in texts.items()}
        | {f"{name}.png": image for name, image in images.items()},
    )
    shown = [table for section in content[:2] for table in section.tables[:1]]
    return "\n\n".join(map(tables.to_terminal, shown))


def _replace(folder: pathlib.Path, contents: dict[str, bytes]) -> None:
    """Replaces the files of an earlier report and keeps all other files."""
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        files.write_bytes(folder / name, content)
    for pattern in _OPTIONAL_PLOTS:
        for path in folder.glob(f"{pattern}.png"):
            if path.name not in contents:
                path.unlink()


def markdown(title: str, content: list[Section]) -> str:
    """The report as Markdown, whose plots are files beside it."""
    text = tables.markdown_text
    blocks = [f"# {text(title)}"]
    for section in content:
        blocks.append(f"## {text(section.title)}")
        blocks += [text(paragraph) for paragraph in section.text]
        if section.points:
            blocks.append("\n".join(f"- {text(point)}" for point in section.points))
        blocks += [tables.to_markdown(table) for table in section.tables]
        blocks += [
            f"![{text(plot.alt)}]({plot.name}.png)\n\n{text(plot.caption)}"
            for plot in section.plots
        ]
    return "\n\n".join(blocks) + "\n"


def latex(data: ReportData, results: tables.Table, differences: list[Difference]) -> str:
    """The table of results, and that of the paired differences where there are any."""
    made = [tables.to_latex(results, "results")]
    if differences:
        paired = result_tables.paper_table(data, differences)
        made.append(tables.to_latex(paired, "differences"))
    return "\n".join(made)


def page(title: str, content: list[Section], images: dict[str, bytes]) -> str:
    """The report as one HTML file, whose policy forbids a browser to fetch anything.

    The template escapes every value, and each text loses its control characters before that.
    """
    import jinja2  # It belongs to an optional extra.

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: tables.clean(value) if type(value) is str else value,
    )
    environment.filters["minus_signs"] = tables.minus_signs
    return environment.get_template("report.html.jinja").render(
        title=title,
        sections=content,
        images={name: base64.b64encode(image).decode() for name, image in images.items()},
        width=round(96 * plot_helpers.WIDTH),
    )


def results_csv(data: ReportData, results: dict[str, dict[str, Mean]]) -> str:
    """One row for each variant or baseline and each metric; percentages are fractions."""
    rows = []
    for label, means in results.items():
        variant = data.variants.get(label)
        kind, parameters = ("variant", variant.parameters) if variant else ("baseline", None)
        measured = [(data.split, name, mean) for name, mean in means.items()]
        validated = statistics.validation(variant) if variant else None
        if validated:
            # Another masking than an evaluation's, perhaps, and so another name.
            measured.append((VALIDATION, f"{data.metric.name}_at_best_step", validated))
        for split, name, mean in measured:
            values = (mean.mean, mean.error, mean.over, mean.count, parameters)
            rows.append((label, kind, split, name, *values))
    head = ("mean", "standard_error", "over", "count", "parameters")
    return _csv(("name", "kind", "split", "metric", *head), rows)


def paired_csv(differences: list[Difference]) -> str:
    """One row for each pair and metric; `difference` is `other` minus `base`."""
    rows = []
    for one in differences:
        seeds, by_seed = (
            " ".join(map(str, part)) for part in zip(*one.by_seed.items(), strict=True)
        )
        # Of one group nothing is known of others, and the interval would have no ends.
        ends = (end if math.isfinite(end) else None for end in (one.low, one.high))
        values = (one.mean, one.error, one.freedom, *ends)
        tests = (one.p, one.p_holm, one.p_level, one.p_level_holm)
        said = (seeds, by_seed, one.better, one.verdict)
        rows.append((one.base, one.other, one.metric.name, *values, *tests, *said))
    head = (
        *("base", "other", "metric"),
        *("difference", "standard_error", "degrees_of_freedom", "low", "high"),
        *("p", "p_holm", "p_level", "p_level_holm"),
        *("seeds", "by_seed", "better", "verdict"),
    )
    return _csv(head, rows)


def _csv(head: tuple[str, ...], rows: list[tuple]) -> str:
    return tables.frame(head, rows).to_csv(index=False, lineterminator="\n")
