"""Plots training_sets.png: the methods' losses against the number of training sets.

PYTHONPATH=. python docs/results/training_sets.py 2500=runs/sets_2500 10000=runs/sets_10000 ...
"""

import json
import pathlib
import sys
from typing import TYPE_CHECKING

from cbert.evaluation.baselines import BAYES_OPTIMAL
from cbert.model.conditioning import NAMES
from cbert.report import plot_helpers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def main() -> None:
    """Prints a table, and plots each method's loss above Bayes-optimal."""
    sweeps = [argument.split("=", 1) for argument in sys.argv[1:]]
    sizes = [int(size) for size, _ in sweeps]
    losses = {
        method: [_losses(pathlib.Path(path) / f"{method}-seed0") for _, path in sweeps]
        for method in NAMES
    }
    print("| training sets | " + " | ".join([*NAMES, BAYES_OPTIMAL]) + " |")
    for index, size in enumerate(sizes):
        row = [losses[method][index]["model"] for method in NAMES]
        row.append(losses["none"][index][BAYES_OPTIMAL])
        print(f"| {size:,} | " + " | ".join(f"{loss:.4f}" for loss in row) + " |")
    above = {
        method: (sizes, [one["model"] - one[BAYES_OPTIMAL] for one in losses[method]])
        for method in NAMES
    }

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        plot_helpers.lines(axes, above, {}, plot_helpers.styles(list(NAMES)))
        axes.set(xscale="log", xlabel="training sets", ylabel="nats above Bayes-optimal")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        plot_helpers.legend(figure, axes)

    plot = plot_helpers.Plot("training_sets", "", "", 3.9, paint)
    pathlib.Path(__file__).with_suffix(".png").write_bytes(plot_helpers.render(plot))


def _losses(run: pathlib.Path) -> dict[str, float]:
    results = json.loads((run / "eval" / "test.json").read_text())["results"]
    return {name: values["cross_entropy"]["mean"] for name, values in results.items()}


if __name__ == "__main__":
    main()
