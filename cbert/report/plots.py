"""The report's plots: learning curves, methods, gains and feature importance."""

from typing import TYPE_CHECKING

from cbert.evaluation.baselines import WITHOUT_CONTEXT
from cbert.evaluation.feature_importance import PERMUTED
from cbert.report import plot_helpers
from cbert.report.plot_helpers import Plot, Style
from cbert.report.report_data import ReportData
from cbert.report.result_tables import with_unit
from cbert.report.slices import Gains, Importance
from cbert.report.statistics import Mean
from cbert.tasks.metric import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# One for each baseline, in their order; sequences have six where the optimum is known.
_LINE_STYLES = (":", "--", "-.", (0, (3, 1)), (0, (6, 2)), (0, (6, 2, 1, 2, 1, 2)))


def learning_curves(data: ReportData, styles: dict[str, Style]) -> Plot | None:
    """The deciding metric on the validation split, at the steps that all seeds have."""
    series, bands, metric = {}, {}, data.metric
    for label, variant in data.variants.items():
        curves = [run.curve for run in variant.runs.values()]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        if steps:
            columns = [[curve[step] for curve in curves] for step in steps]
            series[label] = steps, [sum(column) / len(column) for column in columns]
            if len(curves) > 1:
                bands[label] = [(min(column), max(column)) for column in columns]
    if not series:
        return None

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        plot_helpers.lines(axes, series, bands, styles)
        axes.set(xlabel="step", ylabel=f"validation {with_unit(metric)}")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        plot_helpers.legend(figure, axes)

    ends = "; ".join(f"{label} {data.metric.text(y[-1])}" for label, (_, y) in series.items())
    return Plot(
        "learning_curves",
        f"Learning curves: validation {metric.heading}, mean over seeds. The band reaches from "
        "the lowest to the highest seed; a variant with one seed has none.",
        f"Validation {metric.heading} against step. At the last step it is: {ends}.",
        3.9,
        paint,
    )


def methods(
    data: ReportData, results: dict[str, dict[str, Mean]], styles: dict[str, Style]
) -> Plot:
    """The variants with error bars over seeds, and the baselines as lines."""
    labels = list(data.variants)
    metrics = [data.metric, _second_metric(data, results)]

    def paint(figure: "Figure") -> None:
        handles = {}
        for axes, metric in zip(figure.subplots(2, 1), metrics, strict=True):
            name, scale = metric.name, metric.scale
            for number, (label, variant) in enumerate(data.variants.items()):
                each = [scale * one.whole()[name] for one in variant.measured.values()]
                colour = styles[label].color
                axes.plot(each, [number] * len(each), ".", color=colour, alpha=0.45, zorder=1)
            series = {label: {label: _scaled(results[label][name], scale)} for label in labels}
            plot_helpers.dots(axes, labels, series, styles, spread=0.0)
            for baseline, style in zip(data.queries.baselines, _LINE_STYLES, strict=False):
                line = {"linestyle": style, "linewidth": 1, "zorder": 0}
                if name in results[baseline]:
                    mean = scale * results[baseline][name].mean
                    handles[baseline] = axes.axvline(
                        mean, label=baseline, color=plot_helpers.INK, **line
                    )
            axes.set_xlabel(with_unit(metric))
        if handles:
            lines, names = list(handles.values()), list(handles)
            figure.legend(lines, names, loc="outside lower center", ncols=2)

    name, headings = data.metric.name, " and ".join(one.heading for one in metrics)
    shown = "; ".join(
        f"{label} {data.metric.text(results[label][name].mean)}" for label in labels
    )
    return Plot(
        "methods",
        "The variants: mean over seeds. Bars reach one standard error over seeds to both sides "
        "(a variant with one seed has none), and each seed is a small dot. Baselines and "
        "Bayes-optimal are lines.",
        f"{headings} of each variant. The first is: {shown}.",
        1.5 + 0.5 * len(labels),
        paint,
    )


def _second_metric(data: ReportData, results: dict[str, dict[str, Mean]]) -> Metric:
    """The last of the metrics that are shown after a validation and that baselines have.

    Without the context, the ranks of the optimum are not known.
    """
    others = [means for label, means in results.items() if label != WITHOUT_CONTEXT]
    shown = {*data.queries.run.task.shown}.intersection(*others)
    return ([metric for metric in data.shown if metric.name in shown] or data.shown)[-1]


def _scaled(mean: Mean, scale: float) -> Mean:
    error = None if mean.error is None else scale * mean.error
    return Mean(scale * mean.mean, error, mean.over, mean.count)


def gain_by_visible_items(data: ReportData, gains: Gains, styles: dict[str, Style]) -> Plot:
    """The gain over the base variant against the number of visible items."""
    slices = list(gains.queries)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.grid(axis="y", color=plot_helpers.FAINT, linewidth=0.6)
        plot_helpers.zero(axes, "y")
        for index, (label, means) in enumerate(gains.gains.items()):
            offset = 0.08 * (index - (len(gains.gains) - 1) / 2)
            axes.errorbar(
                [number + offset for number in range(len(slices))],
                [means[name].mean for name in slices],
                yerr=[means[name].error or 0.0 for name in slices],
                linewidth=1.4,
                label=plot_helpers.short(label),
                **styles[label].options(),
            )
        every = max(1, len(slices) // 12)
        axes.set_xticks(range(0, len(slices), every), slices[::every])
        axes.set(xlabel=gains.title, ylabel=_gain_label(data))
        plot_helpers.legend(figure, axes)

    return Plot(
        "gain_by_visible_items",
        f"Gain over {data.base} by number of visible items: {data.metric.heading} saved, over "
        "the seeds that both have. Bars are 95 % intervals over groups; a slice of one group "
        "has none.",
        _alt(gains),
        3.9,
        paint,
    )


def gain_by_feature(
    data: ReportData, gains: Gains, name: str, styles: dict[str, Style]
) -> Plot:
    """The gain over the base variant by the values of one feature."""
    slices = list(gains.queries)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        plot_helpers.zero(axes, "x")
        plot_helpers.dots(axes, slices, gains.gains, styles)
        axes.set_xlabel(_gain_label(data))
        axes.set_title(plot_helpers.short(gains.title), loc="left", fontsize=11)
        plot_helpers.legend(figure, axes)

    return Plot(
        name,
        f"Gain over {data.base} by {gains.title}.",
        _alt(gains),
        1.4 + len(slices) * max(0.22, 0.1 * len(gains.gains)),
        paint,
    )


def _gain_label(data: ReportData) -> str:
    unit = f" ({data.metric.unit})" if data.metric.unit else ""
    return f"gain over {plot_helpers.short(data.base)}{unit}"


def _alt(gains: Gains) -> str:
    """The smallest and the largest gain of each variant in words."""
    ranges = []
    for label, means in gains.gains.items():
        order = sorted(means, key=lambda name: means[name].mean)
        if order:
            low, high = order[0], order[-1]
            ranges.append(
                f"{label} from {means[low].mean:.3f} ({low}) to {means[high].mean:.3f} ({high})"
            )
    return f"Gain by {gains.title}: {'; '.join(ranges)}."


def feature_importance(
    metric: Metric, importance: Importance, features: list[str], styles: dict[str, Style]
) -> Plot:
    """How much worse the deciding metric is without each feature, in their given order."""

    def paint(figure: "Figure") -> None:
        panels = figure.subplots(len(importance), 1, squeeze=False)[:, 0]
        for axes, (perturbation, series) in zip(panels, importance.items(), strict=True):
            plot_helpers.zero(axes, "x")
            plot_helpers.dots(axes, features, series, styles)
            axes.set_xlabel(f"{metric.worsening} in {with_unit(metric)}, {perturbation}")
        plot_helpers.legend(figure, panels[0])

    largest = "; ".join(
        f"{max(means, key=lambda name: means[name].mean)} for {label}"
        for label, means in importance[PERMUTED].items()
    )
    row = max(0.24, 0.1 * len(importance[PERMUTED]))
    over = {
        mean.over
        for series in importance.values()
        for means in series.values()
        for mean in means.values()
    }
    errors = " or, where there is one seed, over ".join(sorted(over, reverse=True))
    return Plot(
        "feature_importance",
        f"Feature importance: the {metric.worsening} in {metric.heading} when the values of a "
        "feature are permuted between groups, and when the feature is dropped from a model "
        f"trained with features dropped. Bars are one standard error over {errors}.",
        f"{metric.worsening.capitalize()} in {metric.heading} by feature. The largest when "
        f"permuted: {largest}.",
        0.9 + len(importance) * (0.6 + row * len(features)),
        paint,
    )
