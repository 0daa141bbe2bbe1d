"""Searches learning rate, dropout, width and weight decay, and writes a config. Run it again.

    python -m experiments.tune --config=data/mine/config.py:gs --workdir=runs/tune
    python -m experiments.tune --config=configs/meals.py:gs --workdir=runs/tune --trials=27

Nine trials take a ninth of the steps, the best three a third, the best one all: together three
whole runs. Trials are drawn from the config's seed, the first has the config's own values, and
what decides is the validation split; the test split is never read. A search that was
stopped goes on with the same command.
"""

import functools
import pathlib
import sys
from typing import Any

import ml_collections
from absl import flags

from cbert import files, tasks
from cbert.config import flat
from cbert.data import prepared
from cbert.errors import UserError
from cbert.model import conditioning
from cbert.schema import TEXT
from cbert.sweep import halving, jobs, launchers
from cbert.sweep.points import STEPS, Point
from cbert.sweep.running import Sweep, described
from cbert.text_table import align
from cbert.training import config as config_lib
from cbert.training import own_data, suggest
from cbert.training import workdir as workdir_lib
from configs import base, text
from experiments import command, config_flag, job_commands

_CONFIG = config_flag.define()
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where the trials' directories and config.py go.", required=True
)
_TRIALS = flags.DEFINE_integer("trials", 9, "Trials of the first rung.", 1, halving.MOST_TRIALS)
_WORKERS = flags.DEFINE_integer("workers", 0, "Runs at a time here; 0: as many as fit.", 0)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "List the trials, and end.")
flags.mark_flag_as_required("config")


# A config file may add methods of its own when it is read.
_BUILT_IN = frozenset({*conditioning.NAMES, *tasks.TASKS})


def main() -> None:
    """Runs rung after rung, and writes the config of the best trial."""
    config, workdir = _CONFIG.value, pathlib.Path(_WORKDIR.value).expanduser().absolute()
    config_lib.check(config)
    for name, value in (("model.method", config.model.method), ("task.name", config.task.name)):
        if value not in _BUILT_IN:
            raise UserError(
                f"{name} is {value!r}, and a config is written for what comes with cbert only; "
                "use experiments.sweep with --set"
            )
    sizes = halving.rung_sizes(_TRIALS.value)
    schema = prepared.load_schema(config.data.dir, config.data.name)
    metric = tasks.create(config, config_lib.build_model(config, schema), schema).metrics[0]
    rungs: list[halving.Scores] = []
    halving.check(config, _TRIALS.value, workdir)
    if _DRY_RUN.value:
        print(align(halving.table(config, _TRIALS.value, rungs, metric)))
        return
    files.check_writable(workdir)
    job_commands.end_on_signals()
    for rung in range(len(sizes)):
        trials = halving.following(sizes, rungs, metric)
        points = halving.points(config, rung, len(sizes), trials)
        for point in points:
            own, directory = point.apply(config), workdir / point.name
            workdir_lib.check(own, schema, directory)
            own_data.check(own, directory)
        if not _run(config, points, workdir):
            print("\nstopped; the same command goes on")
            return
        paths = [workdir / point.name for point in points]
        values = [halving.score(path, metric) for path in paths]
        rungs.append(dict(zip(trials, values, strict=True)))
        page = halving.page(config, _TRIALS.value, rungs, metric)
        files.write_text(workdir / halving.PAGE, page)
        if not halving.following(sizes, rungs, metric):
            raise UserError(
                f"every trial of rung {rung} failed, for the reasons above; where losses are "
                "not finite, lower the learning rate"
            )
    print(align(halving.table(config, _TRIALS.value, rungs, metric)))
    (chosen,) = halving.following(sizes, rungs, metric)
    _write(config, schema.kind, workdir, chosen)


def _run(config: ml_collections.ConfigDict, points: list[Point], workdir: pathlib.Path) -> bool:
    """Runs what is not finished of a rung; False if it was stopped."""
    evaluate = functools.partial(job_commands.evaluate, halving.SPLIT, False)
    todo = jobs.make(points, workdir, False, job_commands.train, evaluate)
    sweep = Sweep(todo, points[0].overrides[STEPS], halving.SPLIT)
    if not sweep.finished():
        launcher = launchers.Local(_WORKERS.value)
        job_commands.keep_configs(config, todo)
        sweep.run(launcher, job_commands.Shown())
    if sweep.failures:  # A trial whose loss is not finite is a result, too.
        print(described(sweep.failures), file=sys.stderr)
    return sweep.ended()


def _takes_task(kind: str) -> bool:
    """Whether the argument of the config that was given is a task, as it is of most texts."""
    _, argument = config_flag.parts()
    name = argument.partition(",")[0]
    return name in tasks.TASKS or (kind == TEXT and name not in conditioning.NAMES)


def _write(
    config: ml_collections.ConfigDict, kind: str, workdir: pathlib.Path, trial: int
) -> None:
    """Writes the config of a trial, with the steps and the argument of the one given."""
    chosen = config.copy_and_resolve_references().unlock()
    chosen.update_from_flattened_dict(halving.draw(config, trial))
    method, path = chosen.model.method, workdir / "config.py"
    if _takes_task(kind):
        argument, what, parent = chosen.task.name, "task", "text"
        defaults = flat(text.get_config(argument).to_dict()) | {"model.method": ""}
    else:
        argument, what, parent = method, "conditioning method", "base"
        defaults = flat(base.get_config(argument).to_dict())
    fields: dict[str, tuple[Any, str]] = {
        name: (value, "")
        for name, value in flat(chosen.to_dict()).items()
        if value != defaults[name]
    }
    title = f"{chosen.data.name}: the best of {_TRIALS.value} trials, number {trial}."
    note = f"The argument is the {what}; the values were searched for {method}."
    name = chosen.data.name
    source = suggest.source(path, name, argument, title, note, fields, parent, tuned=True)
    files.write_text(path, source)
    trained = f"--workdir=runs/{name}/{suggest.tuned_name(method)}"
    print(
        f"\ntrial {trial} is the best; its config is {path}, and all trials are in "
        f"{workdir / halving.PAGE}; train it with\n  "
        + command.to_copy("train", f"--config={path}:{argument}", trained)
    )


if __name__ == "__main__":
    command.run(main)
