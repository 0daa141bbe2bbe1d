"""Makes the report of a sweep: tables, paired comparisons and plots, from its directories.

    python -m experiments.report --workdir=runs/sweep
    python -m experiments.report --workdir=runs/sweep --split=validation --base=gs
    python -m experiments.report --workdir=runs/rates --best_settings

It reads what `experiments.train` and `experiments.evaluate` wrote for each run, and writes
runs/sweep/report/: report.html (one page that needs no other file), report.md, report.tex,
results.csv, paired.csv and the plots. The report of another split than test, or of the best
settings, is in report-validation/ or report-best_settings/. It needs the optional extra: pip
install ".[report]".
"""

import jax
from absl import flags

from cbert.data.records import SPLITS, TEST
from cbert.report import report_data, writers
from experiments import command

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "The directory that holds the runs' directories.", required=True
)
_SPLIT = flags.DEFINE_enum("split", TEST, list(SPLITS), "Which evaluation.")
_BASE = flags.DEFINE_string(
    "base",
    "",
    "Variant that the others are compared with first; by default none, or the first variant "
    "where none has several settings.",
)
_MARGIN = flags.DEFINE_float(
    "margin",
    None,
    "Variants that are shown to be closer than this in the deciding metric are called level; "
    "nats, or a fraction where the metric is in percent. By default 0.01, or for a regression "
    "0.01 of the variance of the numbers.",
    lower_bound=0.0,
)
_BEST_SETTINGS = flags.DEFINE_bool(
    "best_settings",
    False,
    "Of each method keep only the setting that is best on the validation split.",
)


def main() -> None:
    """Reads the runs, computes, plots and writes."""
    writers.check_libraries()
    # Only shapes are computed, so an accelerator is left to processes that train.
    jax.config.update("jax_platforms", "cpu")
    data = report_data.load(
        _WORKDIR.value, _SPLIT.value, _BASE.value, _MARGIN.value, _BEST_SETTINGS.value
    )
    print(writers.write(data))
    for line in data.missing:
        print(f"missing: {line}")
    print(f"\nthe report is {data.folder / 'report.html'}")


if __name__ == "__main__":
    command.run(main)
