"""Draws what each method achieves against its parameters and against its time.

    python docs/methods/costs.py REPORT/results.csv benchmark.json PICTURE.png

The first file is a report's, the second what `experiments.benchmark --methods=all --json`
printed for the same config. A dot is the mean over seeds, its bar one standard error to both
sides.
"""

import csv
import json
import pathlib
import sys

from matplotlib import pyplot

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
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 7), sharey=True, layout="constrained")
    # A variant's name is its method, and after a space what else it changes.
    values = {row["name"].split()[0]: row for row in rows if row["kind"] == "variant"}
    parameters = {name: int(row["parameters"]) / 1000 for name, row in values.items()}
    draw(panels[0], values, parameters, "thousand parameters")
    draw(panels[1], values, seconds, "time of a training step over none's")
    panels[0].set_ylabel(f"test {deciding.replace('_', '-')}, nats")
    lines = {row["name"]: float(row["mean"]) for row in rows if row["name"] in BASELINES}
    for panel in panels:
        for name, value in lines.items():
            panel.axhline(value, linestyle=BASELINES[name], color="#57606a", linewidth=1)
            panel.annotate(name, (0.99, value), xycoords=("axes fraction", "data"), **SMALL)
    figure.savefig(picture, dpi=150)


SMALL = {"fontsize": 8, "ha": "right", "va": "bottom", "color": "#57606a"}


def draw(
    panel: pyplot.Axes, values: dict[str, dict], positions: dict[str, float], label: str
) -> None:
    """One dot a method, with its name to the right, moved upwards where another name stands."""
    known = positions.keys() & values.keys()
    shown = sorted((float(values[name]["mean"]), name) for name in known)
    width = max(positions.values()) - min(positions.values())
    height = shown[-1][0] - shown[0][0]
    names: list[tuple[float, float]] = []
    for mean, name in shown:
        x = positions[name]
        error = float(values[name]["standard_error"] or 0)
        colour = "#57606a" if name == CONTROL else "#bc4c00"
        panel.errorbar(x, mean, yerr=error, fmt="o", color=colour, markersize=4)
        near = [y for other, y in names if abs(other - x) < 0.22 * width]
        y = max([mean, *(y + 0.035 * height for y in near)])
        names.append((x, y))
        panel.annotate(
            name,
            (x, mean),
            xytext=(x + 0.025 * width, y),
            va="center",
            fontsize=8,
            arrowprops={"arrowstyle": "-", "color": "#d0d7de", "shrinkA": 0, "shrinkB": 3},
        )
    panel.set_xlabel(label)
    panel.margins(x=0.2)
    panel.grid(color="#eaeef2")


if __name__ == "__main__":
    main(*sys.argv[1:])
