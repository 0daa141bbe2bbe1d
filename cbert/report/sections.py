"""What the report says: sections of text, tables and pictures, for any kind of page."""

import dataclasses

from cbert.evaluation.compare import HEADS, plus_minus
from cbert.evaluation.evaluate import OPTIMUM
from cbert.evaluation.feature_importance import SHUFFLED, WITHHELD
from cbert.report import plot_helpers, plots, slices, statistics
from cbert.report.plot_helpers import Look, Picture
from cbert.report.query_table import METRICS
from cbert.report.report_data import Study
from cbert.report.statistics import DRAWS, Difference, Mean
from cbert.report.tables import Table

_WAYS = {
    SHUFFLED: "Values exchanged between groups",
    WITHHELD: "Values withheld, from models that were trained for it",
}


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the report: a title, paragraphs, a list, tables and pictures."""

    title: str
    text: list[str] = dataclasses.field(default_factory=list)
    points: list[str] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    pictures: list[Picture] = dataclasses.field(default_factory=list)


def sections(
    study: Study, results: dict[str, dict[str, Mean]], differences: list[Difference]
) -> list[Section]:
    """The whole report; the first table is the paper's Table 1."""
    look = plot_helpers.looks(list(study.variants))
    curves = plots.curves(study, look)
    return [
        Section(
            "Results",
            [_setting(study), *_warning(study)],
            tables=[main_table(study, results)],
            pictures=[plots.methods(study, results, look)],
        ),
        Section("Paired comparisons", *_comparisons(study, differences)),
        *([Section("Learning curves", pictures=[curves])] if curves else []),
        *_gains(study, look),
        _effects(study, look),
        Section("Runs", tables=[_runs(study)]),
        Section(
            "What is missing",
            []
            if study.missing
            else ["Nothing: every variant has the same seeds, all evaluated."],
            study.missing,
        ),
    ]


def title(study: Study) -> str:
    count = len(study.variants)
    variants = f"{count} variants" if count > 1 else "one variant"
    return f"{study.settings['data']}: {variants} on the {study.split} split"


def _setting(study: Study) -> str:
    found = study.settings
    each = "each item hidden once" if found["masking"] == "each" else "one item of each set"
    return (
        f"{found['questions']:,} questions ({each}) of {found['groups']:,} groups; "
        f"{found['skipped']:,} skipped, for their item is not in the vocabulary. Of each run "
        f"the {found['checkpoint']} checkpoint was evaluated."
    )


def _warning(study: Study) -> list[str]:
    count = len(study.missing)
    if not count:
        return []
    return [f"Not all is there: see “What is missing” ({count}) at the end."]


def cell(mean: Mean, metric: str, sign: str = "") -> str:
    """A mean with its standard error, or alone where there is none."""
    scale, digits = (1, 4) if metric == "cross_entropy" else (100, 2)
    if mean.error is None:
        return f"{scale * mean.mean:{sign}.{digits}f}"
    return plus_minus(mean.mean, mean.error, scale, digits, sign)


def source(mean: Mean) -> str:
    """What a standard error is over, in words."""
    if mean.error is None:
        return f"none: one {mean.over.removesuffix('s')}"
    return f"{mean.count:,} {mean.over}"


def main_table(study: Study, results: dict[str, dict[str, Mean]]) -> Table:
    """The form of the paper's Table 1, then controls and the optimum."""
    rows = []
    for label, variant in study.variants.items():
        means, validated = results[label], statistics.validation(variant)
        rows.append(
            (
                label,
                *(cell(means[name], name) for name in METRICS),
                f"{variant.parameters:,}",
                source(means["cross_entropy"]),
                cell(validated, "cross_entropy") if validated else "no rows",
            )
        )
    rules = [len(rows)]
    for label in study.asked.controls:
        if label == OPTIMUM:
            rules.append(len(rows))
        means = results[label]
        cells = (cell(means[name], name) for name in METRICS)
        rows.append((label, *cells, "", source(means["cross_entropy"]), ""))
    heads = (HEADS[name] for name in METRICS)
    head = ("", *heads, "parameters", "± over", "validation cross-entropy")
    return Table(
        f"{study.settings['data']}, {study.split} split: mean ± standard error, of variants "
        "over seeds, of controls over groups. Cross-entropy in nats. Parameters are counted as "
        "in the paper, without context embeddings and the last dense layer. The last column is "
        "of the validation split at the best step, one question a set, ± over seeds; the "
        "paper's own numbers are of its validation split.",
        head,
        rows,
        tuple(rules) if study.asked.controls else (),
    )


def _comparisons(
    study: Study, differences: list[Difference]
) -> tuple[list[str], list[str], list[Table]]:
    if not differences:
        return ["Nothing to compare: no two variants share a seed."], [], []
    text = [
        "A row is the second variant minus the first, question by question, averaged over the "
        f"seeds that both have. For the 95 % interval and p, groups are drawn {DRAWS:,} times "
        "with replacement: both are conditional on these trained models, and say nothing of "
        "other seeds. Holm's correction is over the pairs of a metric; the least p that so "
        f"many draws can give is {2 / (DRAWS + 1):.1g} before it.",
        "A variant is called better only where the interval is clear of zero and every seed's "
        "difference has the same sign; one seed cannot disagree, so another may turn what is "
        "said of it. The interval is not corrected for the number of pairs, Holm's p is.",
    ]
    tables = [
        Table(
            f"{HEADS[name]}, the second minus the first"
            + (" (nats; below zero the second is ahead)" if name == METRICS[0] else " (points)")
            + "; ± standard error over groups",
            ("pair", "difference", "95 % interval", "p", "p, Holm", "same sign", "verdict"),
            [_difference(one) for one in differences if one.metric == name],
            rules=(sum(study.base == one.base for one in differences) // len(METRICS),),
            words=(6,),
        )
        for name in METRICS
    ]
    return text, [], tables


def _difference(one: Difference) -> tuple[str, ...]:
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


def _gains(study: Study, look: dict[str, Look]) -> list[Section]:
    visible = slices.by_visible_items(study)
    if not visible.gains or not visible.questions:
        return []
    found = slices.by_features(study)
    drawn = [
        plots.feature(study, gains, f"gain_by_feature_{place:02}", look)
        for place, gains in enumerate(found.values(), 1)
    ]
    text = [
        f"Cross-entropy saved against {study.base} on the same questions, averaged over "
        "matching seeds; bars are 95 % intervals over groups (1.96 standard errors), "
        f"conditional on these models. Parts of fewer than {slices.LEAST_QUESTIONS} questions "
        f"are left out, and so are vectors and features of more than {slices.MOST_VALUES} "
        "values; numbers are in quarters."
    ]
    return [
        Section(
            "Gain by number of visible items",
            pictures=[plots.visible_items(study, visible, look)],
        ),
        *([Section("Gain by value of a feature", text, pictures=drawn)] if drawn else []),
    ]


def _effects(study: Study, look: dict[str, Look]) -> Section:
    found = slices.effects(study)
    name = "What each feature is worth"
    if SHUFFLED not in found:
        return Section(name, ["Not measured: evaluate the runs with --effects."])
    shuffled = found[SHUFFLED]
    first = next(iter(shuffled.values()))
    worth = {row: max(means[row].mean for means in shuffled.values()) for row in first}
    rows = sorted(worth, key=lambda row: -worth[row])
    tables = [
        Table(
            f"{_WAYS[way]}: cross-entropy (nats) lost, one question a set; ± standard error "
            "over seeds, of one seed over groups. Variants that read no context are left out.",
            ("", *series),
            [
                (row, *(cell(means[row], "cross_entropy", "+") for means in series.values()))
                for row in rows
            ],
        )
        for way, series in found.items()
    ]
    return Section(name, tables=tables, pictures=[plots.effects(found, rows, look)])


def _runs(study: Study) -> Table:
    rows = []
    for label, variant in study.variants.items():
        for seed, run in variant.runs.items():
            value = variant.values[seed]["cross_entropy"].mean()
            rows.append(
                (run.name, label, str(seed), f"{run.evaluation['step']:,}", f"{value:.4f}")
            )
    return Table(
        f"The runs behind the tables; cross-entropy in nats on the {study.split} split.",
        ("directory", "variant", "seed", "step", "cross-entropy"),
        rows,
        words=(1,),
    )
