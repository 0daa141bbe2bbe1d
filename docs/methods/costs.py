"""Draws what each method achieves against its parameters and against its time.

    python docs/methods/costs.py REPORT/results.csv benchmark.json PICTURE.png

The first file is a report's, the second what `experiments.benchmark --methods=all --json`
printed for the same config. A dot is the mean over seeds, its bar one standard error to both
sides.
"""

import csv
import itertools
import json
import pathlib
import sys

from matplotlib import pyplot
from matplotlib.text import Text
from matplotlib.transforms import Bbox

BASELINES = {"Bayes-optimal without context": "--"}
CONTROL = "none"


def main(results: str, benchmark: str, picture: str) -> None:
    """Draws the two panels into one picture."""
    with pathlib.Path(results).open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
    deciding = rows[0]["metric"]
    rows = [row for row in rows if row["metric"] == deciding]
    timed = json.loads(pathlib.Path(benchmark).read_text(encoding="utf-8"))["methods"]
    seconds = {one["method"]: one["time_over_none"] for one in timed} | {CONTROL: 1.0}
    figure, panels = pyplot.subplots(
        1, 2, figsize=(11, 8), dpi=150, sharey=True, layout="constrained"
    )
    # A variant's name is its method, and after a space what else it changes.
    values = {row["name"].split()[0]: row for row in rows if row["kind"] == "variant"}
    parameters = {name: int(row["parameters"]) / 1000 for name, row in values.items()}
    dots = [
        draw(panels[0], values, parameters, "thousand parameters"),
        draw(panels[1], values, seconds, "time of a training step over none's"),
    ]
    panels[0].set_ylabel(f"test {deciding.replace('_', '-')}, nats")
    lines = {row["name"]: float(row["mean"]) for row in rows if row["name"] in BASELINES}
    for panel in panels:
        for name, value in lines.items():
            panel.axhline(value, linestyle=BASELINES[name], color="#57606a", linewidth=1)
            panel.annotate(name, (0.99, value), xycoords=("axes fraction", "data"), **SMALL)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # The names are placed by where things now are.
    for panel, placed in zip(panels, dots, strict=True):
        write_names(panel, placed)
    figure.savefig(picture)


SMALL = {"fontsize": 8, "ha": "right", "va": "bottom", "color": "#57606a"}
# Where a name may stand: directions from its dot, at the first distance that leaves room.
DIRECTIONS = [(1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1)]
DISTANCES = range(8, 80, 8)  # In points.
DOT = 7  # Half the width of a dot, in pixels.


def draw(
    panel: pyplot.Axes, values: dict[str, dict], positions: dict[str, float], label: str
) -> dict[str, tuple[float, float, float]]:
    """One dot a method, without its name; returns where it stands, and its error."""
    dots = {}
    for name in positions.keys() & values.keys():
        x, mean = positions[name], float(values[name]["mean"])
        error = float(values[name]["standard_error"] or 0)
        dots[name] = x, mean, error
        colour = "#57606a" if name == CONTROL else "#bc4c00"
        panel.errorbar(x, mean, yerr=error, fmt="o", color=colour, markersize=4)
    panel.set_xlabel(label)
    panel.margins(x=0.2)
    panel.grid(color="#eaeef2")
    return dots


def write_names(panel: pyplot.Axes, dots: dict[str, tuple[float, float, float]]) -> None:
    """Writes each name beside its dot, where no bar, dot or other name is."""
    taken = []
    for x, mean, error in dots.values():
        bar = panel.transData.transform([(x, mean - error), (x, mean + error)])
        taken.append(Bbox(bar).padded(DOT))
    for name, (*dot, _) in sorted(dots.items(), key=lambda item: item[1][1]):
        for distance, (x, y) in itertools.product(DISTANCES, DIRECTIONS):
            text = panel.annotate(
                name,
                dot,
                xytext=(distance * x, distance * y),
                textcoords="offset points",
                ha={1: "left", 0: "center", -1: "right"}[x],
                va="center",
                fontsize=8,
                arrowprops={"arrowstyle": "-", "color": "#afb8c1", "shrinkA": 0, "shrinkB": 3},
            )
            text.update_positions(panel.figure.canvas.get_renderer())
            box = Text.get_window_extent(text).padded(1)
            inside = panel.bbox.contains(*box.min) and panel.bbox.contains(*box.max)
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()
        else:
            raise SystemExit(f"there is no room for the name {name}; make the picture larger")


if __name__ == "__main__":
    main(*sys.argv[1:])
