"""Exports a trained model to run without its code: StableHLO, parameters, schema and a card.

python -m experiments.export --workdir=runs/gsu --output=exported/gsu
"""

import pathlib

from absl import flags

import cbert
from cbert import export
from cbert.inference import card
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "A new directory.", required=True)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
_INTENDED_USE = flags.DEFINE_string(
    "intended_use", "", "A sentence for the card; by default, the kind of data it learned from."
)


def main() -> None:
    """Exports, and prints what was written."""
    predictor = cbert.load(_WORKDIR.value, _CHECKPOINT.value)
    facts = card.facts(predictor, _WORKDIR.value, _INTENDED_USE.value)
    export.write(predictor, _OUTPUT.value, facts)
    found = list(pathlib.Path(_OUTPUT.value).expanduser().iterdir())
    size = sum(path.stat().st_size for path in found)
    print(
        f"step {predictor.step} of {_WORKDIR.value}: {len(found)} files, "
        f"{size / 2**20:.1f} MiB, in {_OUTPUT.value}\n"
        f"read it with cbert.load_exported({_OUTPUT.value!r})"
    )


if __name__ == "__main__":
    command.run(main)
