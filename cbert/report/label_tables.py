"""F1 of each label by every variant, with means over seeds."""

from cbert.evaluation.label_tables import METRICS, MOST_LABELS
from cbert.report import statistics
from cbert.report.report_data import ReportData, Variant
from cbert.report.result_tables import cell
from cbert.report.tables import Table

F1 = METRICS[-1]


def label_table(data: ReportData) -> Table | None:
    """The most frequent labels; None for a task with fewer than two that occur."""
    first = next(iter(data.variants.values()))
    counts = next(iter(first.measured.values())).label_counts
    # Which labels occur, and in which order, is the same for every seed and variant.
    occurring = 0 if counts is None else int((counts.support > 0).sum())
    if counts is None or occurring < 2:
        return None
    shown = range(min(occurring, MOST_LABELS))
    columns = [_cells(variant, shown) for variant in data.variants.values()]
    rows = [
        (counts.names[n], f"{counts.support[n]:,}", *(column[n] for column in columns))
        for n in shown
    ]
    which = "the labels that occur"
    if occurring > MOST_LABELS:
        which = f"the {MOST_LABELS} most frequent of the {occurring:,} labels that occur"
    caption = f"F1, % of {which}; mean ± standard error over seeds, where there are several."
    return Table(caption, ("label", "support", *data.variants), rows)


def _cells(variant: Variant, labels: range) -> list[str]:
    """The F1 of these labels by a variant."""
    counts = [each.label_counts for each in variant.measured.values()]
    by_seed = [each.f1 for each in counts if each is not None]
    return [cell(statistics.over_seeds([f1[n] for f1 in by_seed]), F1) for n in labels]
