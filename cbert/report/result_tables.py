"""The tables of the report, with their captions."""

from cbert.evaluation.baselines import BAYES_OPTIMAL
from cbert.evaluation.compare import plus_minus
from cbert.evaluation.feature_importance import DROPPED, PERMUTED
from cbert.report import statistics
from cbert.report.query_table import REPORTED_METRICS, TITLES
from cbert.report.report_data import ReportData
from cbert.report.statistics import Difference, Mean
from cbert.report.tables import Table

_PERTURBATIONS = {
    PERMUTED: "The values of one feature are permuted between groups",
    DROPPED: "One feature is dropped, for models that were trained with features dropped",
}


def cell(mean: Mean, metric: str, sign: str = "") -> str:
    """A mean with its standard error, or alone where it has none."""
    scale, digits = (1, 4) if metric == "cross_entropy" else (100, 2)
    if mean.error is None:
        return f"{scale * mean.mean:{sign}.{digits}f}"
    return plus_minus(mean.mean, mean.error, scale, digits, sign)


def _error_over(mean: Mean) -> str:
    """The unit that a standard error is over, in words."""
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
    metrics = (TITLES[name] for name in REPORTED_METRICS)
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


def comparison_table(data: ReportData, metric: str, differences: list[Difference]) -> Table:
    """The differences in one metric, the pairs with the base variant first."""
    of_metric = [one for one in differences if one.metric == metric]
    unit = " (points)"
    if metric == "cross_entropy":
        unit = " (nats; the second is better where it is negative)"
    return Table(
        f"{TITLES[metric]}, the second minus the first{unit}; ± standard error over groups",
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


def importance_table(
    perturbation: str, rises: dict[str, dict[str, Mean]], features: list[str]
) -> Table:
    """The rise in cross-entropy when a feature is perturbed, a column for each variant."""
    return Table(
        f"{_PERTURBATIONS[perturbation]}: rise in cross-entropy (nats), one query an example; "
        "± standard error over seeds, or over groups where there is one seed. Variants that "
        "read no context are left out.",
        ("", *rises),
        [
            (name, *(cell(means[name], "cross_entropy", "+") for means in rises.values()))
            for name in features
        ],
    )


def runs_table(data: ReportData) -> Table:
    """The run directories, their checkpoints and their cross-entropy."""
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
