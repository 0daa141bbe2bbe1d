"""Helpers to draw plots with matplotlib; the HTML page inverts them on a dark screen."""

import dataclasses
import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cbert.report.statistics import Mean
from cbert.report.tables import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, DOTS = 5.4, 160
LEGEND_ROW = 0.2  # Inches.
LONGEST_NAME, MOST_MARKERS = 26, 12
MARKERS = "osD^vPX*<>"

PAPER, INK, FAINT = "#ffffff", "#22272e", "#d5dae0"
COLOURS = (
    *("#4b5563", "#0072b2", "#d55e00", "#00835f"),
    *("#a6478c", "#8a6a00", "#5557c9", "#b3261e"),
)


@dataclasses.dataclass(frozen=True)
class Plot:
    """A plot before it is drawn.

    Attributes:
      name: The name of its file, without `.png`.
      caption: What the plot shows, with the meaning of bars and bands.
      alt: The same in words, for readers who cannot see it.
      height: The height in inches.
      paint: A function that draws into a figure.
    """

    name: str
    caption: str
    alt: str
    height: float
    paint: Callable[["Figure"], None]


def render(plot: Plot) -> bytes:
    """The plot as a PNG file."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {
        **{"font.size": 10, "text.parse_math": False},
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK),
        **{f"{axis}tick.color": INK for axis in "xy"},
        **{"axes.facecolor": PAPER, "figure.facecolor": PAPER},
        **{"axes.spines.top": False, "axes.spines.right": False},
        **{"legend.frameon": False, "axes.axisbelow": True, "lines.markersize": 4.5},
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; the tables show the name in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH, plot.height), layout="constrained")
        plot.paint(figure)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=DOTS)
    return file.getvalue()


@dataclasses.dataclass(frozen=True)
class Style:
    """The colour and marker of a variant, which are the same in all plots."""

    color: str
    marker: str

    def options(self) -> dict[str, Any]:
        """The keyword arguments of matplotlib's functions."""
        return dataclasses.asdict(self)


def styles(labels: list[str]) -> dict[str, Style]:
    """One style for each label."""
    return {
        label: Style(COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)])
        for index, label in enumerate(labels)
    }


def lines(
    axes: "Axes",
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    bands: dict[str, list[tuple[float, float]]],
    styles: dict[str, Style],
    markers: bool = False,
) -> None:
    """Draws a line for each variant, with a band from low to high where it has one.

    A line of many points has no markers, unless `markers` is set.
    """
    axes.grid(color=FAINT, linewidth=0.6)
    for label, (x, y) in series.items():
        options = styles[label].options()
        if len(x) > MOST_MARKERS and not markers:
            options["marker"] = ""
        axes.plot(x, y, linewidth=1.6, label=short(label), **options)
        if label in bands:
            low, high = zip(*bands[label], strict=True)
            axes.fill_between(x, low, high, color=options["color"], alpha=0.2, linewidth=0)


def dots(
    axes: "Axes",
    rows: list[str],
    series: dict[str, dict[str, Mean]],
    styles: dict[str, Style],
    spread: float = 0.7,
) -> None:
    """Draws a row for each name and a dot for each variant in it.

    Bars reach the errors to both sides. The variants of a row are spread over the fraction
    `spread` of its height.
    """
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    for index, (label, means) in enumerate(series.items()):
        offset = spread * ((index + 0.5) / len(series) - 0.5)
        shown = [(number, means[row]) for number, row in enumerate(rows) if row in means]
        if not shown:
            continue
        axes.errorbar(
            [mean.mean for _, mean in shown],
            [number + offset for number, _ in shown],
            xerr=[mean.error or 0.0 for _, mean in shown],
            linestyle="none",
            elinewidth=1.4,
            label=short(label),
            **styles[label].options(),
        )
    axes.set_yticks(range(len(rows)), [short(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color=FAINT, linewidth=0.6)


def zero(axes: "Axes", across: str) -> None:
    """Marks zero, with an upright line for `x` and a level one for `y`."""
    mark = axes.axvline if across == "x" else axes.axhline
    mark(0, color=INK, linewidth=0.9)


def legend(figure: "Figure", axes: "Axes") -> None:
    """Adds a legend below the figure, in as many columns as fit; many rows make it higher."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = max(1, min(len(labels), int(86 / (max(map(len, labels)) + 10))))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)
        rows = math.ceil(len(labels) / columns)
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * max(rows - 2, 0))


def short(text: str) -> str:
    """A name short enough for a plot."""
    text = clean(text)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
