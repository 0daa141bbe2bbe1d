"""The tables of the report, with their captions."""

from cbert.evaluation.baselines import BAYES_OPTIMAL
from cbert.evaluation.compare import plus_minus
from cbert.evaluation.feature_importance import DROPPED, PERMUTED
from cbert.report import statistics
from cbert.report.report_data import ReportData
from cbert.report.statistics import Difference, Mean
from cbert.report.tables import Table
from cbert.tasks.base import Metric
from cbert.tasks.masked_item import MaskedItem

_PERTURBATIONS = {
    PERMUTED: "The values of one feature are permuted between groups",
    DROPPED: "One feature is dropped, for models that were trained with features dropped",
}

LOSS = Metric("loss", "min", "loss")
_PAPER = {MaskedItem.name: "; the paper's own numbers are of its validation split"}


def cell(mean: Mean | None, metric: Metric, sign: str = "") -> str:
    """A mean with its standard error, or alone where it has none; none is an empty cell."""
    if mean is None:
        return ""
    scale, digits = metric.scale, metric.digits
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
        loss = statistics.training_loss(variant)
        rows.append(
            (
                label,
                *(cell(means[metric.name], metric) for metric in data.metrics),
                f"{variant.parameters:,}",
                _error_over(means[data.metric.name]),
                cell(validated, data.metric) if validated else "no rows",
                cell(loss, LOSS) if loss else "no rows",
            )
        )
    rules = [len(rows)] if data.queries.baselines else []
    for label in data.queries.baselines:
        if label == BAYES_OPTIMAL:
            rules.append(len(rows))
        means = results[label]
        cells = (cell(means.get(metric.name), metric) for metric in data.metrics)
        rows.append((label, *cells, "", _error_over(next(iter(means.values()))), "", ""))
    titles = (metric.title for metric in data.metrics)
    units = "Cross-entropy is in nats. " if data.metric.unit == "nats" else ""
    task = data.queries.run.task.name
    return Table(
        f"{data.settings['data']}, {data.split} split: mean ± standard error. Errors of "
        "variants are over seeds, errors of baselines over groups. "
        f"{units}Parameters are counted as in the paper, without context embeddings and the "
        "last dense layer. The last two columns have errors over seeds. One is measured on the "
        f"validation split at the best step, with one query an example{_PAPER.get(task, '')}. "
        "The other is the mean over the last training steps that were logged, with dropout.",
        (
            *("", *titles, "parameters", "± over"),
            *(f"validation {data.metric.heading}", "training loss"),
        ),
        rows,
        sorted(set(rules)),
    )


def comparison_table(data: ReportData, metric: Metric, differences: list[Difference]) -> Table:
    """The differences in one metric, the pairs with the base variant first."""
    of_metric = [one for one in differences if one.metric == metric]
    notes = ["points" if metric.percent else metric.unit]
    if metric.best == "min":
        notes.append("the second is better where it is negative")
    note = "; ".join(note for note in notes if note)
    unit = f" ({note})" if note else ""
    return Table(
        f"{metric.title}, the second minus the first{unit}; ± standard error over groups",
        ("pair", "difference", "95 % interval", "p", "p, Holm", "same sign", "verdict"),
        [_comparison_row(one) for one in of_metric],
        rules=(sum(one.base == data.base for one in of_metric),),
        words=(6,),
    )


def _comparison_row(one: Difference) -> tuple[str, ...]:
    scale, digits = one.metric.scale, one.metric.digits
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
    metric: Metric, perturbation: str, rises: dict[str, dict[str, Mean]], features: list[str]
) -> Table:
    """The rise in a metric when a feature is perturbed, a column for each variant."""
    return Table(
        f"{_PERTURBATIONS[perturbation]}: rise in {with_unit(metric)}, one query an example; ± "
        "standard error over seeds, or over groups where there is one seed. Variants that "
        "read no context are left out.",
        ("", *rises),
        [
            (name, *(cell(means[name], metric, "+") for means in rises.values()))
            for name in features
        ],
    )


def with_unit(metric: Metric) -> str:
    """A metric's heading with its unit in brackets."""
    return f"{metric.heading} ({metric.unit})" if metric.unit else metric.heading


def runs_table(data: ReportData) -> Table:
    """The run directories, their checkpoints and their value of the deciding metric."""
    rows, metric = [], data.metric
    for label, variant in data.variants.items():
        for seed, run in variant.runs.items():
            value = metric.scale * variant.measured[seed].whole()[metric.name]
            step = (run.evaluation or {})["step"]
            rows.append((run.name, label, str(seed), f"{step:,}", f"{value:.{metric.digits}f}"))
    return Table(
        f"The runs behind the tables; {with_unit(metric)} is that of the {data.split} split.",
        ("directory", "variant", "seed", "step", metric.heading),
        rows,
        words=(1,),
    )
