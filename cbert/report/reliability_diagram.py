"""The reliability diagram: how often predictions are right against their probability."""

from typing import TYPE_CHECKING

import numpy as np

from cbert.report import plot_helpers
from cbert.report.plot_helpers import Plot, Style
from cbert.report.report_data import ReportData
from cbert.tasks.label_metrics import BINS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A bin with fewer predictions has no dot, because its accuracy would be chance.
LEAST_PREDICTIONS = 10


def reliability_diagram(data: ReportData, styles: dict[str, Style]) -> Plot | None:
    """Accuracy against mean probability in each bin, and the fraction of predictions there.

    The predictions of all seeds count together. None where calibration is not measured.
    """
    summed = {}
    for label, variant in data.variants.items():
        tables = [one.reliability for one in variant.measured.values()]
        known = [table for table in tables if table is not None]
        if known:
            summed[label] = np.sum(known, axis=0)
    if not summed:
        return None

    def paint(figure: "Figure") -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        upper.plot([0, 1], [0, 1], color=plot_helpers.INK, linewidth=0.9, linestyle=":")
        series = {}
        for label, (counts, right, probability) in summed.items():
            kept = counts >= LEAST_PREDICTIONS
            series[label] = probability[kept] / counts[kept], right[kept] / counts[kept]
        plot_helpers.lines(upper, series, {}, styles, markers=True)
        edges = np.linspace(0, 1, BINS + 1)
        for label, (counts, _, _) in summed.items():
            heights = 100 * counts / counts.sum()
            lower.stairs(heights, edges, color=styles[label].color, linewidth=1.4)
        upper.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
        lower.set(xlabel="probability", ylabel="predictions (%)")
        lower.grid(color=plot_helpers.FAINT, linewidth=0.6)
        plot_helpers.legend(figure, upper)

    shown = "; ".join(f"{label} {_gap(table):+.3f}" for label, table in summed.items())
    return Plot(
        "reliability",
        "Reliability: how often predictions are right against their mean probability, in "
        f"{BINS} bins, the seeds of a variant together; bins of fewer than {LEAST_PREDICTIONS} "
        "predictions have no dot. On the dotted line probabilities are what they say, and "
        "below it they are too high. Underneath, the percentage of predictions in each bin.",
        f"Accuracy against probability. Mean probability minus accuracy: {shown}.",
        4.9,
        paint,
    )


def _gap(table: np.ndarray) -> float:
    counts, right, probability = table.sum(axis=1)
    return float((probability - right) / counts)
