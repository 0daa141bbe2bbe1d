"""Precision, recall and F1 of each label: a table for each variant, with means over seeds."""

from cbert.evaluation.label_tables import METRICS, MOST_LABELS, values
from cbert.report import statistics
from cbert.report.report_data import ReportData
from cbert.report.result_tables import cell
from cbert.report.tables import Table
from cbert.tasks.label_counts import LabelCounts


def label_tables(data: ReportData) -> list[Table]:
    """The tables of the labels that occur; none where there are fewer than two."""
    tables = []
    for variant in data.variants.values():
        measured = [each.label_counts for each in variant.measured.values()]
        counts = [each for each in measured if each is not None]
        # Those that occur come first, in the same order for every seed.
        occurring = int((counts[0].support > 0).sum()) if counts else 0
        if occurring > 1:
            tables.append(_table(variant.label, counts, occurring))
    return tables


def _table(variant: str, counts: list[LabelCounts], occurring: int) -> Table:
    """The table of a variant, whose seeds have these counts."""
    shown = min(occurring, MOST_LABELS)
    by_seed = [values(each) for each in counts]
    rows = []
    for n, name in enumerate(counts[0].names[:shown]):
        cells = [
            cell(statistics.over_seeds([one[metric.name][n] for one in by_seed]), metric)
            for metric in METRICS
        ]
        rows.append((name, *cells, f"{counts[0].support[n]:,}"))
    which = f"the {shown} most frequent of the {occurring:,} labels that occur"
    seeds = f"mean ± standard error over {len(counts)} seeds" if len(counts) > 1 else "one seed"
    return Table(
        f"{variant}: {'the labels that occur' if shown == occurring else which}; {seeds}.",
        ("label", *(metric.title for metric in METRICS), "support"),
        rows,
    )
