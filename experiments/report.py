"""Makes the report of a sweep: tables, paired comparisons and pictures, from its directories.

    python -m experiments.report --workdir=runs/sweep
    python -m experiments.report --workdir=runs/sweep --split=validation --base=gs

Reads what `experiments.train` and `experiments.evaluate` left in runs/sweep/NAME/ and writes
runs/sweep/report/: report.html (one page, nothing else needed), report.md, report.tex,
results.csv, paired.csv and the pictures. Needs the optional extra: pip install ".[report]".
"""

import jax
from absl import flags

from cbert.report import plot_helpers, report_data, writers
from experiments import command

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "The directory that holds the runs' directories.", required=True
)
_SPLIT = flags.DEFINE_enum(
    "split", "test", ["train", "validation", "test"], "Which evaluation."
)
_BASE = flags.DEFINE_string("base", "none", "Variant that the others are compared with first.")


def main() -> None:
    """Reads, computes, draws and writes."""
    plot_helpers.check()
    # Only shapes are made: an accelerator is left to whoever trains.
    jax.config.update("jax_platforms", "cpu")
    found = report_data.load(_WORKDIR.value, _SPLIT.value, _BASE.value)
    print(writers.write(found))
    for line in found.missing:
        print(f"missing: {line}")
    print(f"\nthe report is {found.directory / 'report' / 'report.html'}")


if __name__ == "__main__":
    command.run(main)
