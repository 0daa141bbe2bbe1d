"""The content of the report: sections of text, tables and plots, for any kind of file."""

import dataclasses

from cbert.evaluation.feature_importance import PERMUTED
from cbert.report import plot_helpers, plots, result_tables, slices
from cbert.report.plot_helpers import Plot, Style
from cbert.report.query_table import REPORTED_METRICS
from cbert.report.report_data import ReportData
from cbert.report.statistics import DRAWS, Difference, Mean
from cbert.report.tables import Table


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
    return [
        Section(
            "Results",
            [_setting(data), *_warning(data)],
            tables=[result_tables.main_table(data, results)],
            plots=[plots.methods(data, results, styles)],
        ),
        _comparisons(data, differences),
        *([Section("Learning curves", plots=[curves])] if curves else []),
        *_gains(data, styles),
        _feature_importance(data, styles),
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
    masking = "each item is masked once"
    if settings["masking"] != "each":
        masking = "one item of each example is masked"
    return (
        f"There are {settings['queries']:,} queries ({masking}) from {settings['groups']:,} "
        f"groups; {settings['skipped']:,} more were skipped because their item is not in the "
        f"vocabulary. The {settings['checkpoint']} checkpoint of each run was evaluated."
    )


def _warning(data: ReportData) -> list[str]:
    count = len(data.missing)
    if not count:
        return []
    entries = "one entry" if count == 1 else f"{count} entries"
    return [f"The report is incomplete: “What is missing” at the end has {entries}."]


def _comparisons(data: ReportData, differences: list[Difference]) -> Section:
    name = "Paired comparisons"
    if not differences:
        return Section(name, ["There is nothing to compare: no two variants share a seed."])
    text = [
        "A row shows the second variant minus the first, query by query, averaged over the "
        "seeds that both have. The 95 % interval and p come from a bootstrap that draws groups "
        f"{DRAWS:,} times with replacement. Both are conditional on these trained models and "
        "say nothing about other seeds. Holm's correction is over the pairs of a metric; "
        f"before it, the smallest p that so many draws can give is {2 / (DRAWS + 1):.1g}.",
        "A variant is called better only where the interval excludes zero and every seed's "
        "difference has the same sign. A single seed cannot disagree with itself, so further "
        "seeds may change its verdict. The interval is not corrected for the number of pairs; "
        "Holm's p is.",
    ]
    return Section(
        name,
        text,
        tables=[
            result_tables.comparison_table(data, metric, differences)
            for metric in REPORTED_METRICS
        ],
    )


def _gains(data: ReportData, styles: dict[str, Style]) -> list[Section]:
    visible = slices.by_visible_items(data)
    if not visible.gains or not visible.queries:
        return []
    by_feature = [
        plots.gain_by_feature(data, of_feature, f"gain_by_feature_{number:02}", styles)
        for number, of_feature in enumerate(slices.by_features(data).values(), 1)
    ]
    text = [
        f"The gain is the cross-entropy of {data.base} minus that of the variant on the same "
        "queries, averaged over the seeds that both have. Bars are 95 % intervals over groups "
        "(1.96 standard errors), conditional on these models. Slices with fewer than "
        f"{slices.LEAST_QUERIES} queries, vectors, and features with more than "
        f"{slices.MOST_VALUES} values are left out; numbers are sliced at their quarters."
    ]
    by_count = plots.gain_by_visible_items(data, visible, styles)
    gains = [Section("Gain by number of visible items", plots=[by_count])]
    if by_feature:
        gains.append(Section("Gain by value of a feature", text, plots=by_feature))
    return gains


def _feature_importance(data: ReportData, styles: dict[str, Style]) -> Section:
    importance = slices.feature_importance(data)
    title = "Feature importance"
    if PERMUTED not in importance:
        return Section(
            title, ["It was not measured: evaluate the runs with feature importance."]
        )
    permuted = importance[PERMUTED]
    first = next(iter(permuted.values()))
    largest = {name: max(means[name].mean for means in permuted.values()) for name in first}
    features = sorted(largest, key=lambda name: -largest[name])
    tables = [
        result_tables.importance_table(perturbation, rises, features)
        for perturbation, rises in importance.items()
    ]
    plot = plots.feature_importance(importance, features, styles)
    return Section(title, tables=tables, plots=[plot])
