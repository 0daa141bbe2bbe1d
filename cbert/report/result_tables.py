"""The tables of the report, with their captions."""

import dataclasses
import math

from cbert.evaluation.baselines import BAYES_OPTIMAL, OPTIMA, WITHOUT_CONTEXT
from cbert.evaluation.compare import interval, plus_minus, share_of_worth
from cbert.evaluation.feature_importance import DROPPED, PERMUTED
from cbert.report import statistics
from cbert.report.report_data import ReportData
from cbert.report.statistics import Difference, Mean
from cbert.report.tables import Table
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.metric import Metric
from cbert.text_table import numbers

_PERTURBATIONS = {
    PERMUTED: "The values of one feature are permuted between groups",
    DROPPED: "One feature is dropped, for models that were trained with features dropped",
}

LOSS = Metric("loss", "min", "loss")
_SHARE = Metric("share_of_worth", "max", "share of the context's worth", percent=True)
_WORTH = (
    "The context's worth is the cross-entropy of Bayes-optimal without context minus that of "
    "Bayes-optimal; a variant's share of it is how far its own lies below the former."
)
_PAPER = {MaskedItem.name: "; the paper's own numbers are of its validation split"}


def cell(mean: Mean | None, metric: Metric, sign: str = "") -> str:
    """A mean with its standard error, or alone where it has none; none is an empty cell."""
    if mean is None:
        return ""
    return plus_minus(mean.mean, mean.error, metric.scale, metric.digits, sign)


def _error_over(mean: Mean) -> str:
    """The unit that a standard error is over, in words."""
    if mean.error is None:
        return f"one {mean.over.removesuffix('s')} only"
    return f"{mean.count:,} {mean.over}"


def main_table(data: ReportData, results: dict[str, dict[str, Mean]]) -> Table:
    """A table like the paper's Table 1, followed by the baselines and Bayes-optimal."""
    rows, shares = [], _shares(data, results)
    for label, variant in data.variants.items():
        means, validated = results[label], statistics.validation(variant)
        loss = statistics.training_loss(variant)
        rows.append(
            (
                label,
                *(cell(means[metric.name], metric) for metric in data.shown),
                *(cell(share, _SHARE) for share in shares.get(label, ())),
                f"{variant.parameters:,}",
                _error_over(means[data.metric.name]),
                cell(validated, data.metric) if validated else "no rows",
                cell(loss, LOSS) if loss else "no rows",
            )
        )
    rules = [len(rows)] if data.queries.baselines else []
    for label in data.queries.baselines:
        if label == (WITHOUT_CONTEXT if shares else BAYES_OPTIMAL):
            rules.append(len(rows))
        means = results[label]
        cells = [cell(means.get(metric.name), metric) for metric in data.shown]
        cells += [""] * bool(shares)
        rows.append((label, *cells, "", _error_over(next(iter(means.values()))), "", ""))
    titles = [metric.title for metric in data.shown] + [_SHARE.title] * bool(shares)
    units = "Cross-entropy is in nats. " if data.metric.unit == "nats" else ""
    task = data.queries.run.task.name
    return Table(
        f"{data.settings['data']}, {data.split} split: mean ± standard error. Errors of "
        "variants are over seeds, errors of baselines over groups. "
        f"{units}Parameters are counted as in the paper, without context embeddings and the "
        "last dense layer. The last two columns have errors over seeds. One is measured on the "
        f"validation split at the best step, with one query an example{_PAPER.get(task, '')}. "
        "The other is the mean over the last training steps that were logged, with dropout."
        + (f" {_WORTH}" if shares else ""),
        (
            *("", *titles, "parameters", "± over"),
            *(f"validation {data.metric.heading}", "training loss"),
        ),
        rows,
        sorted(set(rules)),
        brief=f"{data.settings['data']}, {data.split} split: mean ± standard error over seeds, "
        "of baselines over groups.",
    )


def _shares(data: ReportData, results: dict[str, dict[str, Mean]]) -> dict[str, list[Mean]]:
    """Each variant's share of the context's worth, in a list; empty where it is not known."""
    if WITHOUT_CONTEXT not in results:
        return {}
    name = data.metric.name
    without, optimal = (results[label][name].mean for label in OPTIMA)
    shares = {}
    for label in data.variants:
        own = results[label][name]
        share = share_of_worth(own.mean, without, optimal)
        if share is None:
            return {}
        error = None if own.error is None else own.error / (without - optimal)
        shares[label] = [dataclasses.replace(own, mean=share, error=error)]
    return shares


def choice_table(data: ReportData) -> Table:
    """The variants among which one was chosen for each method."""
    metric = data.metric
    rows, rules = [], []
    for number, one in enumerate(data.candidates):
        if number and one.method != data.candidates[number - 1].method:
            rules.append(number)
        mean = statistics.over_seeds(list(one.validation.values()))
        count = str(mean.count)
        rows.append((one.label, cell(mean, metric), count, "chosen" if one.chosen else ""))
    return Table(
        f"{metric.title[0].upper()}{metric.title[1:]} on the validation split at the best step "
        "of each run, with one query an example: mean ± standard error over seeds.",
        ("setting", metric.title, "seeds", "chosen"),
        rows,
        rules,
        words=(3,),
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
        f"{metric.title}, the second minus the first{unit}; ± standard error",
        (
            *("pair", "difference", "95 % interval", "± and interval over"),
            *("p", "p, Holm", "p of level, Holm", "verdict"),
        ),
        [_comparison_row(one) for one in of_metric],
        rules=(sum(one.base == data.base for one in of_metric),),
        words=(3, 7),
    )


def paper_table(data: ReportData, differences: list[Difference]) -> Table:
    """The differences in the metric that decides, with what a paper says of them."""
    whole = comparison_table(data, data.metric, differences)
    of_metric = [one for one in differences if one.metric == data.metric]
    rows = [
        (f"{one.other} − {one.base}", row[1], row[2], row[5], row[7])
        for one, row in zip(of_metric, whole.rows, strict=True)
    ]
    unit = "points" if data.metric.percent else data.metric.unit
    over = "seeds and groups" if any(len(one.by_seed) > 1 for one in of_metric) else "groups"
    return Table(
        f"{whole.caption}. The interval is not corrected for the number of pairs; a verdict "
        f"needs {statistics.LEAST_SEEDS} seeds.",
        ("", "difference", "95 % interval", "p (Holm)", "verdict"),
        rows,
        whole.rules,
        words=(4,),
        brief=f"{data.settings['data']}, {data.split} split: differences in "
        f"{data.metric.heading}{f' ({unit})' if unit else ''} on the same queries, ± standard "
        f"error over {over}.",
    )


def _comparison_row(one: Difference) -> tuple[str, ...]:
    metric, count = one.metric, len(one.by_seed)
    return (
        f"{one.base} → {one.other}",
        plus_minus(one.mean, one.error, metric.scale, metric.digits, "+"),
        interval(one.low, one.high, metric),
        f"{count} seeds and groups" if count > 1 else "groups, one seed",
        _p(one.p),
        _p(one.p_holm),
        _p(one.p_level_holm),
        one.verdict,
    )


def _p(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.4f}" if value >= 1e-4 else "< 0.0001"


def importance_table(
    metric: Metric, perturbation: str, rises: dict[str, dict[str, Mean]], features: list[str]
) -> Table:
    """How much worse a metric is when a feature is perturbed, a column for each variant."""
    return Table(
        f"{_PERTURBATIONS[perturbation]}: {metric.worsening} in {with_unit(metric)}, one query "
        "an example; ± standard error over seeds, or over groups where there is one seed. "
        "Variants that read no context are left out.",
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
            rows.append(
                (run.name, label, str(seed), f"{step:,}", numbers([value], metric.digits)[0])
            )
    return Table(
        f"The runs behind the tables; {with_unit(metric)} is that of the {data.split} split.",
        ("directory", "variant", "seed", "step", metric.heading),
        rows,
        words=(1,),
    )
