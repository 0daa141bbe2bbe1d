"""The report as files: Markdown, LaTeX, CSV, and one HTML page that needs nothing else."""

import base64
import csv
import io
import pathlib

from cbert import files, progress
from cbert.report import plot_helpers, sections, statistics, tables
from cbert.report.plot_helpers import Picture
from cbert.report.report_data import Study
from cbert.report.run_directory import REPORT
from cbert.report.sections import Section
from cbert.report.statistics import Difference, Mean
from cbert.report.stylesheet import STYLESHEET

# Pictures that not every report has.
_SOMETIMES = ("learning_curves", "gain_by_visible_items", "gain_by_feature_*", "effects")


def write(study: Study) -> str:
    """Writes DIR/report/, each file whole; returns the tables for a terminal."""
    results, differences = statistics.results(study), statistics.pairs(study)
    written = sections.sections(study, results, differences)
    drawn = [picture for section in written for picture in section.pictures]
    bar = progress.bar(drawn, desc="drawing", unit=" pictures")
    images = {picture.name: plot_helpers.render(picture) for picture in bar}
    title, main = sections.title(study), written[0].tables[0]
    texts = {
        "report.md": markdown(title, written),
        "report.tex": tables.to_latex(main, "results"),
        "results.csv": results_csv(study, results),
        "paired.csv": paired_csv(differences),
        "report.html": page(title, written, images),
    }
    _write(
        study.directory / REPORT,
        {name: text.encode("utf-8") for name, text in texts.items()}
        | {f"{name}.png": data for name, data in images.items()},
    )
    shown = [table for section in written[:2] for table in section.tables[:1]]
    return "\n\n".join(map(tables.to_terminal, shown))


def _write(folder: pathlib.Path, made: dict[str, bytes]) -> None:
    """Replaces the files of an earlier report; whatever else lies there stays."""
    folder.mkdir(exist_ok=True)
    for name, data in made.items():
        files.write_bytes(folder / name, data)
    for pattern in _SOMETIMES:
        for path in folder.glob(f"{pattern}.png"):
            if path.name not in made:
                path.unlink()


def markdown(title: str, sections: list[Section]) -> str:
    text = tables.markdown_text
    blocks = [f"# {text(title)}"]
    for section in sections:
        blocks.append(f"## {text(section.title)}")
        blocks += [text(paragraph) for paragraph in section.text]
        if section.points:
            blocks.append("\n".join(f"- {text(point)}" for point in section.points))
        blocks += [tables.to_markdown(table) for table in section.tables]
        blocks += [
            f"![{text(picture.alt)}]({picture.name}.png)\n\n{text(picture.caption)}"
            for picture in section.pictures
        ]
    return "\n\n".join(blocks) + "\n"


def page(title: str, sections: list[Section], images: dict[str, bytes]) -> str:
    """One HTML file: its policy lets a browser fetch nothing."""
    text = tables.html_text
    blocks = []
    for section in sections:
        inside = [f"<h2>{text(section.title)}</h2>"]
        inside += [f"<p>{text(paragraph)}</p>" for paragraph in section.text]
        if section.points:
            points = "".join(f"<li>{text(point)}</li>" for point in section.points)
            inside.append(f"<ul>{points}</ul>")
        inside += [tables.to_html(table) for table in section.tables]
        drawn = [_picture(picture, images[picture.name]) for picture in section.pictures]
        if drawn:
            kind = " class=several" if len(drawn) > 1 else ""
            inside.append(f"<div{kind}>{''.join(drawn)}</div>")
        blocks.append("<section>\n" + "\n".join(inside) + "\n</section>")
    return (
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLESHEET}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{text(title)}</h1>\n" + "\n".join(blocks) + "\n</main>\n</body>\n</html>\n"
    )


def _picture(picture: Picture, image: bytes) -> str:
    width, height = (round(96 * inches) for inches in (plot_helpers.WIDTH, picture.height))
    return (
        f"<figure><img src='data:image/png;base64,{base64.b64encode(image).decode()}' "
        f"width={width} height={height} alt='{tables.html_text(picture.alt)}'>"
        f"<figcaption>{tables.html_text(picture.caption)}</figcaption></figure>"
    )


def results_csv(study: Study, results: dict[str, dict[str, Mean]]) -> str:
    """A row a variant or control and metric; recall as a share."""
    head = ("name", "kind", "split", "metric", "mean", "standard_error", "over", "count")
    rows = [(*head, "parameters")]
    for label, means in results.items():
        variant = study.variants.get(label)
        kind, parameters = ("variant", variant.parameters) if variant else ("control", "")
        found = [(study.split, name, mean) for name, mean in means.items()]
        validated = statistics.validation(variant) if variant else None
        if validated:
            found.append(("validation", "cross_entropy", validated))
        for split, name, mean in found:
            error = "" if mean.error is None else mean.error
            row = (label, kind, split, name, mean.mean, error, mean.over, mean.count)
            rows.append((*row, parameters))
    return _csv(rows)


def paired_csv(differences: list[Difference]) -> str:
    """A row a pair and metric; `difference` is `other` minus `base`."""
    head = ("base", "other", "metric", "difference", "standard_error", "low", "high", "p")
    rows = [(*head, "p_holm", "seeds", "by_seed", "better")]
    for one in differences:
        error = "" if one.error is None else one.error
        row = (one.base, one.other, one.metric, one.mean, error, one.low, one.high, one.p)
        seeds, values = (
            " ".join(map(str, part)) for part in zip(*one.by_seed.items(), strict=True)
        )
        rows.append((*row, one.p_holm, seeds, values, one.better or ""))
    return _csv(rows)


def _csv(rows: list[tuple]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
