"""The report's pictures: curves, methods, gains and effects."""

from typing import TYPE_CHECKING

from cbert.evaluation.evaluate import GIVEN_CONTEXT, OPTIMUM, POPULARITY
from cbert.evaluation.feature_importance import SHUFFLED
from cbert.report import plot_helpers
from cbert.report.plot_helpers import Look, Picture
from cbert.report.report_data import Study
from cbert.report.slices import Gains
from cbert.report.statistics import Mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of a normal distribution: so many standard errors to both sides hold 95 %.
INTERVAL = 1.96
_STYLES = {POPULARITY: ":", GIVEN_CONTEXT: "--", OPTIMUM: "-."}


def curves(study: Study, look: dict[str, Look]) -> Picture | None:
    """Validation cross-entropy against step, at the steps that all seeds have."""
    series, bands = {}, {}
    for label, variant in study.variants.items():
        found = [run.curve for run in variant.runs.values()]
        steps = sorted(set.intersection(*(set(curve) for curve in found)))
        if steps:
            columns = [[curve[step] for curve in found] for step in steps]
            series[label] = steps, [sum(column) / len(column) for column in columns]
            if len(found) > 1:
                bands[label] = [(min(column), max(column)) for column in columns]
    if not series:
        return None

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        plot_helpers.lines(axes, series, bands, look)
        axes.set(xlabel="step", ylabel="validation cross-entropy (nats)")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        plot_helpers.legend(figure, axes)

    ends = "; ".join(f"{label} {y[-1]:.4f}" for label, (_, y) in series.items())
    return Picture(
        "learning_curves",
        "Learning curves: validation cross-entropy, mean over seeds; the band reaches from the "
        "lowest to the highest seed, and there is none where there is one seed.",
        f"Validation cross-entropy against step, at the last step: {ends}.",
        3.9,
        paint,
    )


def methods(
    study: Study, results: dict[str, dict[str, Mean]], look: dict[str, Look]
) -> Picture:
    """The variants with error bars over seeds; controls as lines."""
    labels = list(study.variants)
    metrics = {"cross_entropy": ("cross-entropy (nats)", 1), "recall@5": ("r@5 (%)", 100)}

    def paint(figure: "Figure") -> None:
        for axes, (name, (title, scale)) in zip(
            figure.subplots(2, 1), metrics.items(), strict=True
        ):
            for number, (label, variant) in enumerate(study.variants.items()):
                each = [scale * values[name].mean() for values in variant.values.values()]
                colour = look[label].style["color"]
                axes.plot(each, [number] * len(each), ".", color=colour, alpha=0.45, zorder=1)
            series = {label: {label: _scaled(results[label][name], scale)} for label in labels}
            plot_helpers.dots(axes, labels, series, look, 1.0, spread=0.0)
            for control in study.asked.controls:
                mean = scale * results[control][name].mean
                style = {
                    "color": plot_helpers.INK,
                    "linestyle": _STYLES[control],
                    "linewidth": 1,
                }
                axes.axvline(mean, label=control, zorder=0, **style)
            axes.set_xlabel(title)
        handles, names = axes.get_legend_handles_labels()
        lines = [
            (handle, name)
            for handle, name in zip(handles, names, strict=True)
            if name in study.asked.controls
        ]
        if lines:
            figure.legend(*zip(*lines, strict=True), loc="outside lower center", ncols=2)

    shown = "; ".join(f"{label} {results[label]['cross_entropy'].mean:.4f}" for label in labels)
    return Picture(
        "methods",
        "The variants: mean over seeds, bars one standard error over seeds to both sides (none "
        "where there is one seed), each seed a small dot; controls and optimum as lines.",
        f"Cross-entropy and recall at rank 5 of each variant. Cross-entropy: {shown}.",
        1.5 + 0.5 * len(labels),
        paint,
    )


def _scaled(mean: Mean, scale: float) -> Mean:
    error = None if mean.error is None else scale * mean.error
    return Mean(scale * mean.mean, error, mean.over, mean.count)


def visible_items(study: Study, found: Gains, look: dict[str, Look]) -> Picture:
    """Gain over the base against the number of visible items."""
    parts = list(found.questions)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.grid(axis="y", color=plot_helpers.FAINT, linewidth=0.6)
        plot_helpers.zero(axes, "y")
        for place, (label, gains) in enumerate(found.gains.items()):
            offset = 0.08 * (place - (len(found.gains) - 1) / 2)
            axes.errorbar(
                [number + offset for number in range(len(parts))],
                [gains[part].mean for part in parts],
                yerr=[INTERVAL * (gains[part].error or 0.0) for part in parts],
                linewidth=1.4,
                label=plot_helpers.short(label),
                **look[label].style,
            )
        every = max(1, len(parts) // 12)
        axes.set_xticks(range(0, len(parts), every), parts[::every])
        axes.set(
            xlabel=found.title, ylabel=f"gain over {plot_helpers.short(study.base)} (nats)"
        )
        plot_helpers.legend(figure, axes)

    return Picture(
        "gain_by_visible_items",
        f"Gain over {study.base} by number of visible items: cross-entropy saved, over "
        "matching seeds; bars are 95 % intervals over groups (1.96 standard errors).",
        _alt(found),
        3.9,
        paint,
    )


def feature(study: Study, found: Gains, name: str, look: dict[str, Look]) -> Picture:
    """Gain over the base by the value of a feature; `name` is the file's."""
    parts = list(found.questions)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        plot_helpers.zero(axes, "x")
        plot_helpers.dots(axes, parts, found.gains, look, INTERVAL)
        axes.set_xlabel(f"gain over {plot_helpers.short(study.base)} (nats)")
        axes.set_title(plot_helpers.short(found.title), loc="left", fontsize=11)
        plot_helpers.legend(figure, axes)

    return Picture(
        name,
        f"Gain over {study.base} by {found.title}.",
        _alt(found),
        1.4 + len(parts) * max(0.22, 0.1 * len(found.gains)),
        paint,
    )


def _alt(found: Gains) -> str:
    """The largest and the smallest gain of each variant in words."""
    said = []
    for label, gains in found.gains.items():
        order = sorted(gains, key=lambda part: gains[part].mean)
        if order:
            low, high = order[0], order[-1]
            said.append(
                f"{label} from {gains[low].mean:.3f} ({low}) to {gains[high].mean:.3f} ({high})"
            )
    return f"Gain in nats by {found.title}: {'; '.join(said)}."


def effects(
    found: dict[str, dict[str, dict[str, Mean]]], rows: list[str], look: dict[str, Look]
) -> Picture:
    """What each feature is worth; `rows` are the features in their order."""

    def paint(figure: "Figure") -> None:
        panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
        for axes, (way, series) in zip(panels, found.items(), strict=True):
            plot_helpers.zero(axes, "x")
            plot_helpers.dots(axes, rows, series, look, 1.0)
            axes.set_xlabel(f"cross-entropy lost (nats), {way}")
        plot_helpers.legend(figure, panels[0])

    lost = "; ".join(
        f"{label} most by {max(means, key=lambda name: means[name].mean)}"
        for label, means in found[SHUFFLED].items()
    )
    row = max(0.24, 0.1 * len(found[SHUFFLED]))
    means = [mean for way in found.values() for one in way.values() for mean in one.values()]
    over = {mean.over for mean in means}
    errors = " or, of one seed, over ".join(sorted(over, reverse=True))
    return Picture(
        "effects",
        (
            "What each feature is worth: cross-entropy lost when its values are exchanged "
            "between groups (shuffled), and when it is withheld from a model trained for that; "
            f"bars are one standard error over {errors}."
        ),
        f"Cross-entropy lost by feature. Shuffled: {lost}.",
        0.9 + len(found) * (0.6 + row * len(rows)),
        paint,
    )
