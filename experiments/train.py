"""Trains a model, or goes on training it: run the same command again.

python -m experiments.train --config=configs/meals.py:gs --workdir=runs/meals-gs
python -m experiments.train --config=configs/meals.py:gs --seeds=0,1 --workdir=runs/0,runs/1
"""

import pathlib

from absl import flags

from cbert import distributed, runtime
from cbert.evaluation import diagnosis
from cbert.training import config as config_lib
from cbert.training import loop
from cbert.training.workdir import finished, has_checkpoints
from experiments import command, config_flag

_CONFIG = config_flag.define()
_WORKDIR = flags.DEFINE_list(
    "workdir",
    None,
    "The run's directory; several, separated by commas, for several --seeds.",
    required=True,
)
_SEEDS = flags.DEFINE_list(
    "seeds", [], "Seeds to train in one program, each with its own --workdir."
)
_WAIT = flags.DEFINE_bool(
    "wait", False, "Wait where another process trains in the directory, instead of ending."
)
_DIAGNOSE = flags.DEFINE_bool(
    "diagnose", True, "Say in the end how the run went, beside the strongest baseline."
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    "",
    "Address host:port of process 0 of a run of several processes; Slurm sets it itself.",
)
_PROCESSES = flags.DEFINE_integer(
    "num_processes", 1, "With --coordinator: the number of processes.", 1
)
_PROCESS = flags.DEFINE_integer(
    "process_id", None, "With --coordinator: this process's number, from 0.", 0
)
flags.mark_flag_as_required("config")


def main() -> None:
    """Trains in the work directory, or in those of several seeds."""
    if config_lib.has_items(_CONFIG.value):
        runtime.overlap_kernels()  # A step of sets has many small ones.
    distributed.connect(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
    config = _CONFIG.value
    seeds = command.whole_numbers(_SEEDS) if _SEEDS.value else [config.seed]
    workdirs = _WORKDIR.value
    results = loop.train_seeds(config, seeds, workdirs, _WAIT.value)
    if not distributed.is_first():
        return
    for workdir, progress in zip(workdirs, results, strict=True):
        path = pathlib.Path(workdir).expanduser()
        if not finished(path):
            saved = " and saved" if has_checkpoints(path) else ""
            print(f"{workdir}: stopped{saved}; the same command goes on")
            continue
        if _DIAGNOSE.value:
            print(f"{workdir}: {diagnosis.diagnose(workdir)}")
        print(
            f"best validation result {progress.best:.4f} at step {progress.best_step}; "
            "evaluate it with\n  " + command.to_copy("evaluate", f"--workdir={workdir}")
        )


if __name__ == "__main__":
    command.run(main)
