"""Trains and evaluates many runs: methods, settings and seeds. Run it again to go on.

python -m experiments.sweep --config=configs/meals.py --workdir=runs/meals --seeds=3
python -m experiments.sweep --config=configs/meals.py --workdir=runs/rates --methods=none,gsu \\
  --set=optimizer.learning_rate=1e-3,3e-3 --dry_run
"""

import contextlib
import functools
import pathlib
import sys
from typing import Any

from absl import flags

from cbert import files
from cbert.data import prepared
from cbert.data.records import TEST, VALIDATION
from cbert.errors import UserError
from cbert.sweep import jobs, launchers, points
from cbert.sweep.running import Sweep, described
from cbert.training import config_file, own_data
from cbert.training import workdir as workdir_lib
from experiments import command, config_flag, job_commands

_CONFIG = config_flag.define()
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where the runs' directories go.", required=True
)
_METHODS = flags.DEFINE_list(
    "methods", [], "Methods and controls, or all methods: all; the config's own if empty."
)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Seeds of each, counted from the config's.", 1)
_SET = flags.DEFINE_multi_string("set", [], "field=value,value: every value of a field.")
_SPLIT = flags.DEFINE_enum(
    "split", TEST, [VALIDATION, TEST], "The split to evaluate the runs on."
)
_FEATURE_IMPORTANCE = flags.DEFINE_bool(
    "feature_importance", True, "Measure the importance of each context feature."
)
_VMAP_SEEDS = flags.DEFINE_bool("vmap_seeds", False, "The seeds of a method in one program.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "List the runs and their states, and end.")
_LAUNCHER = flags.DEFINE_enum("launcher", "local", ["local", "ray", "slurm"], "Where to run.")
_WORKERS = flags.DEFINE_integer("workers", 0, "Runs at a time here; 0: as many as fit.", 0)
_RAY_ADDRESS = flags.DEFINE_string(
    "ray_address", "", "A Ray cluster's; by default one is started here."
)
_GPUS = flags.DEFINE_float(
    "gpus_per_run", None, "With --launcher=ray: GPUs of a run; 1 if there are any.", 0.0
)
_SLURM = flags.DEFINE_multi_string("slurm", [], "With --launcher=slurm: submitit's name=value.")
flags.mark_flag_as_required("config")


def main() -> None:
    """Expands the sweep, checks all of it, and runs what is not finished."""
    workdir = pathlib.Path(_WORKDIR.value).expanduser().absolute()
    _check_launcher()
    todo, importance = _plan(workdir)
    sweep = Sweep(todo, _CONFIG.value.train.steps, _SPLIT.value, importance)
    if _DRY_RUN.value:
        print(sweep.table())
        if sweep.failed_before:
            logs = (f"{job.name} failed; its log is {job.log}" for job in sweep.failed_before)
            print("", *logs, "without --dry_run what failed is run again", sep="\n")
        return
    if not sweep.finished():
        files.check_writable(workdir)
        job_commands.end_on_signals()
        launcher = _launcher(workdir)
        job_commands.keep_configs(_CONFIG.value, todo)
        sweep.run(launcher, job_commands.Shown())
    print(sweep.table())
    if sweep.failures:
        print(described(sweep.failures), file=sys.stderr)
        sys.exit(1)
    if sweep.finished():
        split = [] if _SPLIT.value == TEST else [f"--split={_SPLIT.value}"]
        report = command.to_copy("report", f"--workdir={_WORKDIR.value}", *split)
        print(f"\nnext: {report}")
    else:
        print("\nstopped; the same command goes on")


def _plan(workdir: pathlib.Path) -> tuple[list[jobs.Job], bool]:
    """The jobs, checked against each other and against what lies in the directory.

    Also whether the importance of features is to be measured.
    """
    config = _CONFIG.value
    schema = (
        prepared.load_schema(config.data.dir, config.data.name) if config.data.name else None
    )
    expanded = points.expand(
        config,
        _own_sweep(config_flag.parts()[0]),
        config_flag.methods(_METHODS.value),
        _SEEDS.value,
        _SET.value,
        schema,
    )
    if (workdir / workdir_lib.CONFIG).exists():
        raise UserError(f"{workdir} is the directory of one run; give the sweep another one")
    for point in expanded:
        own = point.apply(config)
        workdir_lib.check(own, schema, workdir / point.name)
        if schema is not None:
            own_data.check(own, workdir / point.name)
        if _VMAP_SEEDS.value and own.train.patience:
            raise UserError(
                f"{point.name}: train.patience ends each seed at its own step; set "
                "train.patience=0 with --vmap_seeds"
            )
    importance = _FEATURE_IMPORTANCE.value and schema is not None and bool(schema.features)
    evaluate = functools.partial(job_commands.evaluate, _SPLIT.value, importance)
    todo = jobs.make(expanded, workdir, _VMAP_SEEDS.value, job_commands.train, evaluate)
    return todo, importance


def _own_sweep(path: str) -> list[dict[str, Any]]:
    """The config file's list of overrides; none where it has none and --methods is given."""
    entries = config_file.read_sweep(path)
    if entries is None and not _METHODS.value:
        raise UserError(f"{path} has no sweep(); give --methods, or define it")
    return entries or []


def _check_launcher() -> None:
    """Refuses the flags of another launcher, which would change nothing."""
    own = {"local": (_WORKERS,), "ray": (_RAY_ADDRESS, _GPUS), "slurm": (_SLURM,)}
    for launcher, flag in ((name, flag) for name in own for flag in own[name]):
        if flag.present and launcher != _LAUNCHER.value:
            raise UserError(
                f"--{flag.name} is for --launcher={launcher}, and the launcher is "
                f"{_LAUNCHER.value}; leave it out, or give --launcher={launcher}"
            )


def _launcher(workdir: pathlib.Path) -> launchers.Launcher:
    if _LAUNCHER.value == "ray":
        return launchers.Ray(_RAY_ADDRESS.value, _GPUS.value)
    if _LAUNCHER.value == "slurm":
        return launchers.Slurm(workdir / ".slurm", dict(map(_parameter, _SLURM.value)))
    return launchers.Local(_WORKERS.value)


def _parameter(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise UserError(f"--slurm is {text!r}; write --slurm=name=value")
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, value


if __name__ == "__main__":
    command.run(main)
