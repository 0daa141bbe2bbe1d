"""The content of the report: sections of text, tables and plots, for any kind of file."""

import dataclasses

from cbert.data.records import VALIDATION
from cbert.evaluation.baselines import OPTIMA
from cbert.evaluation.feature_importance import PERMUTED
from cbert.evaluation.sown import ATTENTION
from cbert.report import (
    difference_plot,
    explained,
    heat_map,
    label_tables,
    plot_helpers,
    plots,
    reliability_diagram,
    result_tables,
    slices,
)
from cbert.report.plot_helpers import Plot, Style
from cbert.report.report_data import ReportData
from cbert.report.statistics import LEAST_SEEDS, Difference, Mean
from cbert.report.tables import Table
from cbert.tasks.label_metrics import BINS


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the report: a title, paragraphs, a list of points, tables and plots."""

    title: str
    text: list[str] = dataclasses.field(default_factory=list)
    points: list[str] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    plots: list[Plot] = dataclasses.field(default_factory=list)


def make(
    data: ReportData, results: dict[str, dict[str, Mean]], differences: list[Difference]
) -> list[Section]:
    """All sections; the first table of the first one has the form of the paper's Table 1."""
    styles = plot_helpers.styles(list(data.variants))
    curves = plots.learning_curves(data, styles)
    compared = difference_plot.difference_plot(data, differences, styles)
    return [
        Section(
            "Results",
            [_setting(data), *_warning(data), *_better_baselines(data, results)],
            tables=[result_tables.main_table(data, results)],
            plots=[plots.methods(data, results, styles), *([compared] if compared else [])],
        ),
        _comparisons(data, differences),
        *_choice(data),
        *([Section("Learning curves", plots=[curves])] if curves else []),
        *_labels(data),
        *_calibration(data, styles),
        *_gains(data, styles),
        _feature_importance(data, styles),
        *_attention(data),
        *_state(data),
        Section("Runs", tables=[result_tables.runs_table(data)]),
        Section(
            "What is missing",
            []
            if data.missing
            else ["Nothing is missing: every variant has the same seeds, all evaluated."],
            data.missing,
        ),
    ]


def title(data: ReportData) -> str:
    """The title of the report, with the data, the number of variants and the split."""
    count = len(data.variants)
    variants = f"{count} variants" if count > 1 else "one variant"
    return f"{data.settings['data']}: {variants} on the {data.split} split"


def _setting(data: ReportData) -> str:
    settings = data.settings
    token = "item" if data.queries.visible is not None else "token"
    skipped = "their item is not in the vocabulary" if token == "item" else "they have none"
    asked, reason = {
        "each": (f"each {token} is masked once", skipped),
        "one": (f"one {token} of each example is masked", skipped),
        "last": ("the last item of each sequence is masked", skipped),
        "": ("one an example", "their target is missing or was not seen in training"),
    }[settings["masking"]]
    return (
        f"There are {settings['queries']:,} queries ({asked}) from {settings['groups']:,} "
        f"groups; {settings['skipped']:,} more were skipped because {reason}. "
        f"The {settings['checkpoint']} checkpoint of each run was evaluated."
    )


def _warning(data: ReportData) -> list[str]:
    count = len(data.missing)
    if not count:
        return []
    entries = "one entry" if count == 1 else f"{count} entries"
    return [f"The report is incomplete: “What is missing” at the end has {entries}."]


def _better_baselines(data: ReportData, results: dict[str, dict[str, Mean]]) -> list[str]:
    """A sentence for each baseline that has a better mean than some variant."""
    metric, sentences = data.metric, []
    for baseline in data.queries.baselines:
        if baseline in OPTIMA or metric.name not in results[baseline]:
            continue
        own = results[baseline][metric.name].mean
        worse = [
            label
            for label in data.variants
            if metric.improves(own, results[label][metric.name].mean)
        ]
        if worse:
            sentences.append(
                f"{baseline} has a better {metric.heading} than {', '.join(worse)}."
            )
    return [" ".join(sentences)] if sentences else []


def _comparisons(data: ReportData, differences: list[Difference]) -> Section:
    name = "Paired comparisons"
    if not differences:
        return Section(name, ["There is nothing to compare: no two variants share a seed."])
    text = [
        "A row shows the second variant minus the first, query by query, averaged over the "
        "seeds that both have. The standard error, the 95 % interval and p carry what other "
        "seeds and other groups would change: two-way random effects, with a t distribution. "
        "With one seed they carry the groups alone and say nothing about "
        "another run. Holm's correction is over the pairs of a metric; the interval is not "
        "corrected for their number.",
        f"With at least {LEAST_SEEDS} seeds there is a verdict, at a level of 5 % by Holm's p. "
        "Two variants are level where they are shown to differ by less than "
        f"{_margin(data)} (two one-sided tests), even if their difference is not zero. "
        "Otherwise one is better where the difference is shown not to be zero, and the pair is "
        "undecided where neither is shown. In the other metrics there is no margin.",
    ]
    return Section(
        name,
        text,
        tables=[
            result_tables.comparison_table(data, metric, differences) for metric in data.shown
        ],
    )


def _choice(data: ReportData) -> list[Section]:
    """What was tried, where one setting of each method was chosen."""
    if not data.candidates:
        return []
    text = (
        "For each method the setting was chosen that has the best mean on the validation "
        "split, among those with every seed that any setting of the method has. Only these "
        "settings are in the other tables and plots."
    )
    if data.split == VALIDATION:
        text += " They are of that same split, so that what was chosen looks better than it is."
    return [Section("Choice of settings", [text], tables=[result_tables.choice_table(data)])]


def _margin(data: ReportData) -> str:
    """The margin with its unit."""
    metric = data.metric
    unit = f" {'points' if metric.percent else metric.unit}".rstrip()
    return f"{metric.scale * data.margin:g}{unit} of {metric.heading}"


def _labels(data: ReportData) -> list[Section]:
    """The F1 of each label, where the task has several."""
    table = label_tables.label_table(data)
    return [Section("Labels", tables=[table])] if table else []


def _calibration(data: ReportData, styles: dict[str, Style]) -> list[Section]:
    """The reliability diagram, where the task's predictions have probabilities to calibrate."""
    plot = reliability_diagram.reliability_diagram(data, styles)
    if plot is None:
        return []
    text = [
        f"Predictions fall into {BINS} bins of equal width by their probability; a calibrated "
        "model is right as often as it says. The calibration error in the tables is the mean "
        "distance between the two over predictions (expected calibration error, Guo et al., "
        "2017). For several labels, a prediction is a pair of a text and a label, and it is "
        "right where the text has the label."
    ]
    return [Section("Calibration", text, plots=[plot])]


def _gains(data: ReportData, styles: dict[str, Style]) -> list[Section]:
    by_feature = [
        plots.gain_by_feature(data, of_feature, f"gain_by_feature_{number:02}", styles)
        for number, of_feature in enumerate(slices.by_features(data).values(), 1)
    ]
    text = [
        f"The gain is by how much {data.metric.heading} is better than that of {data.base} on "
        "the same queries, averaged over the seeds that both have. Bars are 95 % intervals "
        "over groups, conditional on these models; a slice of one group has none. Slices with "
        f"fewer than {slices.LEAST_QUERIES} queries, vectors, and features with more than "
        f"{slices.MOST_VALUES} values are left out; numbers are sliced at their quarters."
    ]
    gains, visible = [], slices.by_visible_items(data)
    if visible is not None and visible.gains and visible.queries:
        by_count = plots.gain_by_visible_items(data, visible, styles)
        gains.append(Section("Gain by number of visible items", plots=[by_count]))
    if by_feature:
        gains.append(Section("Gain by value of a feature", text, plots=by_feature))
    return gains


def _feature_importance(data: ReportData, styles: dict[str, Style]) -> Section:
    importance = slices.feature_importance(data)
    title = "Feature importance"
    if PERMUTED not in importance:
        advice = "evaluate the runs with feature importance, if the data allow it"
        return Section(title, [f"It was not measured: {advice}."])
    permuted = importance[PERMUTED]
    first = next(iter(permuted.values()))
    largest = {name: max(means[name].mean for means in permuted.values()) for name in first}
    features = sorted(largest, key=lambda name: -largest[name])
    tables = [
        result_tables.importance_table(data.metric, perturbation, rises, features)
        for perturbation, rises in importance.items()
    ]
    plot = plots.feature_importance(data.metric, importance, features, styles)
    return Section(title, tables=tables, plots=[plot])


def _attention(data: ReportData) -> list[Section]:
    """The attention of each variant's first run of which it was measured at its checkpoint."""
    by_label = explained.by_variant(data, ATTENTION, heat_map.check)
    maps = [
        heat_map.heat_map(measured, f"attention_{number:02}", label)
        for number, (label, measured) in enumerate(by_label.items(), 1)
    ]
    text = [
        "What is attended to is read, but need not change the prediction; feature importance "
        "says what does."
    ]
    return [Section("Attention to the context", text, plots=maps)] if maps else []


def _state(data: ReportData) -> list[Section]:
    """What blocks read, dead units and gradients, of variants of which they were measured."""
    by_label = explained.by_variant(data, "state", explained.check_state)
    if not by_label:
        return []
    return [Section("State of the models", tables=[explained.state_table(by_label)])]
