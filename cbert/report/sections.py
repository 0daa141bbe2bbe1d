"""The content of the report: sections of text, tables and plots, for any kind of file."""

import dataclasses

from cbert.evaluation.baselines import BAYES_OPTIMAL
from cbert.evaluation.compare import HEADINGS, plus_minus
from cbert.evaluation.feature_importance import DROPPED, PERMUTED
from cbert.report import plot_helpers, plots, slices, statistics
from cbert.report.plot_helpers import Plot, Style
from cbert.report.query_table import REPORTED_METRICS
from cbert.report.report_data import ReportData
from cbert.report.statistics import DRAWS, Difference, Mean
from cbert.report.tables import Table

_PERTURBATIONS = {
    PERMUTED: "The values of one feature are permuted between groups",
    DROPPED: "One feature is dropped, for models that were trained with features dropped",
}


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
            tables=[main_table(data, results)],
            plots=[plots.methods(data, results, styles)],
        ),
        _comparisons(data, differences),
        *([Section("Learning curves", plots=[curves])] if curves else []),
        *_gains(data, styles),
        _feature_importance(data, styles),
        Section("Runs", tables=[_runs(data)]),
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
        f"There are {settings['questions']:,} queries ({masking}) from {settings['groups']:,} "
        f"groups; {settings['skipped']:,} more were skipped because their item is not in the "
        f"vocabulary. The {settings['checkpoint']} checkpoint of each run was evaluated."
    )


def _warning(data: ReportData) -> list[str]:
    count = len(data.missing)
    if not count:
        return []
    return [f"The report is incomplete: “What is missing” at the end has {count} entries."]


def cell(mean: Mean, metric: str, sign: str = "") -> str:
    """A mean with its standard error, or alone where it has none."""
    scale, digits = (1, 4) if metric == "cross_entropy" else (100, 2)
    if mean.error is None:
        return f"{scale * mean.mean:{sign}.{digits}f}"
    return plus_minus(mean.mean, mean.error, scale, digits, sign)


def _error_over(mean: Mean) -> str:
    """What a standard error is over, in words."""
    if mean.error is None:
        return f"none: one {mean.over.removesuffix('s')}"
    return f"{mean.count:,} {mean.over}"


def main_table(data: ReportData, results: dict[str, dict[str, Mean]]) -> Table:
    """A table like the paper's Table 1, followed by the baselines and Bayes-optimal."""
    rows = []
    for label, variant in data.variants.items():
        means, validated = results[label], statistics.validation(variant)
        rows.append(
            (
                label,
                *(cell(means[name], name) for name in REPORTED_METRICS),
                f"{variant.parameters:,}",
                _error_over(means["cross_entropy"]),
                cell(validated, "cross_entropy") if validated else "no rows",
            )
        )
    rules = [len(rows)] if data.queries.baselines else []
    for label in data.queries.baselines:
        if label == BAYES_OPTIMAL:
            rules.append(len(rows))
        means = results[label]
        cells = (cell(means[name], name) for name in REPORTED_METRICS)
        rows.append((label, *cells, "", _error_over(means["cross_entropy"]), ""))
    metrics = (HEADINGS[name] for name in REPORTED_METRICS)
    return Table(
        f"{data.settings['data']}, {data.split} split: mean ± standard error. Errors of "
        "variants are over seeds, errors of baselines over groups. Cross-entropy is in nats. "
        "Parameters are counted as in the paper, without context embeddings and the last dense "
        "layer. The last column is measured on the validation split at the best step, with one "
        "query an example and errors over seeds; the paper's own numbers are of its validation "
        "split.",
        ("", *metrics, "parameters", "± over", "validation cross-entropy"),
        rows,
        sorted(set(rules)),
    )


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
        tables=[_comparison_table(data, metric, differences) for metric in REPORTED_METRICS],
    )


def _comparison_table(data: ReportData, metric: str, differences: list[Difference]) -> Table:
    of_metric = [one for one in differences if one.metric == metric]
    unit = " (points)"
    if metric == "cross_entropy":
        unit = " (nats; the second is better where it is negative)"
    return Table(
        f"{HEADINGS[metric]}, the second minus the first{unit}; ± standard error over groups",
        ("pair", "difference", "95 % interval", "p", "p, Holm", "same sign", "verdict"),
        [_comparison_row(one) for one in of_metric],
        rules=(sum(one.base == data.base for one in of_metric),),
        words=(6,),
    )


def _comparison_row(one: Difference) -> tuple[str, ...]:
    scale, digits = (1, 4) if one.metric == "cross_entropy" else (100, 2)
    mean = Mean(one.mean, one.error, statistics.GROUPS, 0)
    alone = " (one seed)" if len(one.by_seed) == 1 else ""
    same = max(
        sum(value > 0 for value in one.by_seed.values()),
        sum(value < 0 for value in one.by_seed.values()),
    )
    return (
        f"{one.base} → {one.other}",
        cell(mean, one.metric, "+"),
        f"[{scale * one.low:+.{digits}f}, {scale * one.high:+.{digits}f}]",
        f"{one.p:.4f}",
        f"{one.p_holm:.4f}",
        f"{same} of {len(one.by_seed)}",
        f"{one.better} better{alone}" if one.better else "not clear",
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
        Table(
            f"{_PERTURBATIONS[perturbation]}: rise in cross-entropy (nats), one query an "
            "example; ± standard error over seeds, or over groups where there is one seed. "
            "Variants that read no context are left out.",
            ("", *rises),
            [
                (name, *(cell(means[name], "cross_entropy", "+") for means in rises.values()))
                for name in features
            ],
        )
        for perturbation, rises in importance.items()
    ]
    plot = plots.feature_importance(importance, features, styles)
    return Section(title, tables=tables, plots=[plot])


def _runs(data: ReportData) -> Table:
    rows = []
    for label, variant in data.variants.items():
        for seed, run in variant.runs.items():
            value = variant.values[seed]["cross_entropy"].mean()
            step = (run.evaluation or {})["step"]
            rows.append((run.name, label, str(seed), f"{step:,}", f"{value:.4f}"))
    return Table(
        f"The runs behind the tables; cross-entropy is in nats on the {data.split} split.",
        ("directory", "variant", "seed", "step", "cross-entropy"),
        rows,
        words=(1,),
    )
