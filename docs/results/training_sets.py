"""Draws training_sets.png: the methods' losses against the number of training sets.

python docs/results/training_sets.py 2500=runs/sets_2500 40000=runs/sets_40000 ...
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

METHODS = {"none": "o", "c": "s", "np": "D", "gs": "^", "gsu": "v"}
OPTIMUM = "known optimum"


def main() -> None:
    """Prints a table, and draws each method's loss above the known optimum."""
    sweeps = [argument.split("=", 1) for argument in sys.argv[1:]]
    sizes = [int(size) for size, _ in sweeps]
    found = {
        method: [_losses(pathlib.Path(path) / f"{method}-seed0") for _, path in sweeps]
        for method in METHODS
    }
    print("| training sets | " + " | ".join([*METHODS, OPTIMUM]) + " |")
    for place, size in enumerate(sizes):
        row = [found[method][place]["model"] for method in METHODS]
        row.append(found["none"][place][OPTIMUM])
        print(f"| {size:,} | " + " | ".join(f"{loss:.4f}" for loss in row) + " |")
    figure, axes = pyplot.subplots(figsize=(6.5, 3.8), layout="constrained")
    for method, marker in METHODS.items():
        above = [losses["model"] - losses[OPTIMUM] for losses in found[method]]
        axes.plot(sizes, above, marker=marker, label=method)
    axes.set(xscale="log", xlabel="training sets", ylabel="cross-entropy above the optimum")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    axes.minorticks_off()
    axes.grid(color="0.9")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=130)


def _losses(run: pathlib.Path) -> dict[str, float]:
    results = json.loads((run / "eval" / "test.json").read_text())["results"]
    return {name: values["cross_entropy"]["mean"] for name, values in results.items()}


if __name__ == "__main__":
    main()
