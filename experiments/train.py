"""Trains a model, or goes on training it: run the same command again.

python -m experiments.train --config=configs/meals.py:gsu --workdir=runs/meals-gsu
"""

from absl import flags
from ml_collections import config_flags

from cbert.training import loop
from experiments import command

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/NAME.py:METHOD.")
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
flags.mark_flag_as_required("config")


def main() -> None:
    """Trains in the work directory."""
    progress = loop.train(_CONFIG.value, _WORKDIR.value)
    print(
        f"best validation cross-entropy {progress.best:.4f} at step {progress.best_step}; "
        f"evaluate it with\n  python -m experiments.evaluate --workdir={_WORKDIR.value}"
    )


if __name__ == "__main__":
    command.run(main)
