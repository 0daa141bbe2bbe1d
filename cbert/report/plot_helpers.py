"""Pictures with matplotlib's Figure; the page turns them dark on a dark screen."""

import dataclasses
import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cbert.errors import UserError
from cbert.report.statistics import Mean
from cbert.report.tables import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, DOTS = 5.4, 160
LONGEST, MOST_MARKERS = 26, 12
MARKERS = "osD^vPX*<>"


PAPER, INK, FAINT = "#ffffff", "#22272e", "#d5dae0"
COLOURS = (
    *("#4b5563", "#0072b2", "#d55e00", "#00835f"),
    *("#a6478c", "#8a6a00", "#5557c9", "#b3261e"),
)


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture before it is drawn.

    Attributes:
      name: Of its file, without `.png`.
      caption: What is shown, bars and bands included.
      alt: The same in words, for who cannot see it.
      height: Inches.
      paint: Draws into a figure.
    """

    name: str
    caption: str
    alt: str
    height: float
    paint: Callable[["Figure"], None]


def check() -> None:
    """Raises `UserError` where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(
            f'the report needs the optional extra report ({error}); run pip install ".[report]"'
        ) from None


def render(picture: Picture) -> bytes:
    """The picture as PNG."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        **{"font.size": 10, "text.parse_math": False},
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK),
        **{f"{axis}tick.color": INK for axis in "xy"},
        **{"axes.facecolor": PAPER, "figure.facecolor": PAPER},
        **{"axes.spines.top": False, "axes.spines.right": False},
        **{"legend.frameon": False, "axes.axisbelow": True, "lines.markersize": 4.5},
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # A name in letters that the font lacks is drawn as boxes; the tables have it whole.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH, picture.height), layout="constrained")
        picture.paint(figure)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=DOTS)
    return file.getvalue()


@dataclasses.dataclass(frozen=True)
class Look:
    """A variant's colour and marker, the same in all pictures."""

    place: int

    @property
    def style(self) -> dict[str, Any]:
        return {
            "color": COLOURS[self.place % len(COLOURS)],
            "marker": MARKERS[self.place % len(MARKERS)],
        }


def looks(labels: list[str]) -> dict[str, Look]:
    return {label: Look(place) for place, label in enumerate(labels)}


def lines(
    axes: "Axes",
    series: dict[str, tuple[list[float], list[float]]],
    bands: dict[str, list[tuple[float, float]]],
    look: dict[str, Look],
) -> None:
    """A line a variant, and a band from low to high where there is one."""
    axes.grid(color=FAINT, linewidth=0.6)
    for label, (x, y) in series.items():
        style = look[label].style
        if len(x) > MOST_MARKERS:
            style["marker"] = ""
        axes.plot(x, y, linewidth=1.6, label=short(label), **style)
        if label in bands:
            low, high = zip(*bands[label], strict=True)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)


def dots(
    axes: "Axes",
    rows: list[str],
    series: dict[str, dict[str, Mean]],
    look: dict[str, Look],
    factor: float,
    spread: float = 0.7,
) -> None:
    """A row a name, a dot a variant in it; bars reach `factor` errors to both sides.

    The variants of a row are spread over a share of its height.
    """
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    for place, (label, found) in enumerate(series.items()):
        offset = spread * ((place + 0.5) / len(series) - 0.5)
        shown = [(number, found[row]) for number, row in enumerate(rows) if row in found]
        if not shown:
            continue
        axes.errorbar(
            [mean.mean for _, mean in shown],
            [number + offset for number, _ in shown],
            xerr=[factor * (mean.error or 0.0) for _, mean in shown],
            linestyle="none",
            elinewidth=1.4,
            label=short(label),
            **look[label].style,
        )
    axes.set_yticks(range(len(rows)), [short(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color=FAINT, linewidth=0.6)


def zero(axes: "Axes", across: str) -> None:
    """Marks zero: `x` for an upright line, `y` for a level one."""
    mark = axes.axvline if across == "x" else axes.axhline
    mark(0, color=INK, linewidth=0.9)


def legend(figure: "Figure", axes: "Axes") -> None:
    """Below the figure, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = max(1, min(len(labels), int(62 / (max(map(len, labels)) + 6))))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)


def short(text: str) -> str:
    """A name that a picture has room for."""
    text = clean(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
