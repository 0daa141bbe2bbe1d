"""The plot of the paired comparisons: each variant minus the base, with the verdict."""

from typing import TYPE_CHECKING

from cbert.report import plot_helpers
from cbert.report.plot_helpers import Plot, Style
from cbert.report.report_data import ReportData
from cbert.report.result_tables import with_unit
from cbert.report.statistics import TOO_FEW, Difference, Mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def difference_plot(
    data: ReportData, differences: list[Difference], styles: dict[str, Style]
) -> Plot | None:
    """The differences from the base in the deciding metric, with intervals and verdicts.

    None where no variant has a seed and several groups in common with the base.
    """
    metric, base = data.metric, data.base
    rows = {
        one.other: one
        for one in differences
        if one.metric == metric and one.base == base and one.error is not None
    }
    if not rows:
        return None
    scale, margin = metric.scale, metric.scale * data.margin

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.axvspan(-margin, margin, color=plot_helpers.FAINT, alpha=0.6, linewidth=0)
        plot_helpers.zero(axes, "x")
        for number, (label, one) in enumerate(rows.items()):
            each = [scale * value for value in one.by_seed.values()]
            colour = styles[label].color
            axes.plot(each, [number] * len(each), ".", color=colour, alpha=0.45, zorder=1)
        series = {label: {label: _interval(one, scale)} for label, one in rows.items()}
        plot_helpers.dots(axes, list(rows), series, styles, spread=0.0)
        axes.set_xlabel(f"{with_unit(metric)}, minus {plot_helpers.short(base)}")
        verdicts = axes.secondary_yaxis("right")
        verdicts.set_yticks(range(len(rows)), [_verdict(one) for one in rows.values()])
        verdicts.tick_params(length=0)
        verdicts.spines["right"].set_visible(False)

    shown = "; ".join(
        f"{label} {scale * one.mean:+.3f} ({_verdict(one)})" for label, one in rows.items()
    )
    side = "left" if metric.best == "min" else "right"
    return Plot(
        "differences",
        f"Each variant minus {base}, over the seeds that both have, with the verdict. What is "
        f"better than {base} lies to the {side}. Bars are 95 % intervals over seeds and "
        "groups, over groups alone where there is one seed; each seed is a small dot. The grey "
        "band is the margin within which variants are called level.",
        f"{metric.heading} minus that of {base}: {shown}.",
        1.0 + 0.36 * len(rows),
        paint,
    )


def _interval(one: Difference, scale: float) -> Mean:
    """The mean with half the interval as its error: the interval is symmetric."""
    return Mean(scale * one.mean, scale * (one.high - one.low) / 2, "", len(one.by_seed))


def _verdict(one: Difference) -> str:
    """The verdict as one of the variant that is compared with the base."""
    if one.better:
        return "better" if one.better == one.other else "worse"
    return "too few seeds" if one.verdict == TOO_FEW else one.verdict
