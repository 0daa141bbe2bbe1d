"""A heat map of the attention to the context's features."""

from typing import TYPE_CHECKING, Any

from cbert.report import plot_helpers
from cbert.report.plot_helpers import Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK = 0.5  # A cell above so much attention has white letters.


def check(measured: dict[str, Any]) -> None:
    """Raises an error unless the attention can be drawn."""
    {name: [float(x) for x in means] for name, means in measured["weights"].items()}


def heat_map(measured: dict[str, Any], name: str, label: str) -> Plot:
    """A row for each feature and a column for each block.

    Args:
      measured: The content of `attention.json`.
      name: The name of the plot's file.
      label: The run or the variant.
    """
    weights = measured["weights"]
    rows, cells = list(weights), list(weights.values())
    blocks = len(cells[0])

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.imshow(cells, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_yticks(range(len(rows)), [plot_helpers.short(row) for row in rows])
        axes.set_xticks(range(blocks), [str(number + 1) for number in range(blocks)])
        axes.tick_params(length=0)
        axes.set_xlabel("block")
        axes.set_title(plot_helpers.short(label), loc="left", fontsize=11)
        for row, means in enumerate(cells):
            for block, mean in enumerate(means):
                colour = plot_helpers.PAPER if mean > DARK else plot_helpers.INK
                axes.text(
                    block, row, f"{100 * mean:.0f}", color=colour, ha="center", va="center"
                )

    largest = max(rows, key=lambda row: sum(weights[row]))
    return Plot(
        name,
        f"Attention of {label} to each feature of the context in each block, in percent: the "
        f"mean over heads, positions and {measured['examples']:,} examples of the "
        f"{measured['split']} split, at step {measured['step']:,}.",
        f"Attention of {label} by feature and block. The most goes to {largest}.",
        0.9 + 0.26 * len(rows),
        paint,
    )
