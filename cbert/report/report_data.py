"""A sweep's runs as one thing: variants with their seeds, on the same questions."""

import dataclasses
import functools
import pathlib
import shlex
from typing import Any

from cbert import progress
from cbert.errors import UserError
from cbert.model import contextual_bert
from cbert.report import query_table, run_directory, variants
from cbert.report.query_table import Asked, Values
from cbert.report.run_directory import Run
from cbert.training import config as config_lib


@dataclasses.dataclass(frozen=True)
class Variant:
    """Runs that differ only in the seed, all of them finished and evaluated.

    Attributes:
      label: Its name in the report.
      runs: Seed to run.
      values: Seed to metric to `float64 [Q]`.
      parameters: Counted as in the paper's Table 1.
    """

    label: str
    runs: dict[int, Run]
    values: dict[int, Values]
    parameters: int


@dataclasses.dataclass(frozen=True)
class Study:
    """All that a report is made from.

    Attributes:
      directory: The sweep's directory.
      split: What was evaluated.
      base: Label of the variant that others are compared with first.
      variants: Label to variant, in the order of the tables.
      asked: The questions, and the controls' answers.
      settings: What `run_directory.SETTINGS` names.
      missing: What is not there, a line each.
    """

    directory: pathlib.Path
    split: str
    base: str
    variants: dict[str, Variant]
    asked: Asked
    settings: dict[str, Any]
    missing: list[str]


def load(directory: str | pathlib.Path, split: str, base: str) -> Study:
    """Reads a sweep's directory.

    Raises:
      UserError: there is nothing to report, the runs cannot be compared, or there is no such
        base.
    """
    directory = pathlib.Path(directory).expanduser()
    found, others = run_directory.read_all(directory, split)
    run_directory.check_same(found)
    grouped = variants.group(found)
    lacking = {run.name: run.lacks(split) for run in found}
    used = {
        label: kept
        for label, seeds in grouped.items()
        if (kept := {seed: run for seed, run in seeds.items() if not lacking[run.name]})
    }
    _check_base(base, list(used), grouped)
    if not used:
        name, why = next(iter(lacking.items()))
        raise UserError(
            f"no run of {directory} can be reported, {name} for one is {why}; train it, then "
            "python -m experiments.evaluate "
            + shlex.join([f"--workdir={directory / name}", f"--split={split}"])
        )
    asked, made = _read(used)
    settings = {name: asked.run.evaluation[name] for name in run_directory.SETTINGS}
    missing = _missing(grouped, lacking, others)
    return Study(directory, split, base, made, asked, settings, missing)


def _check_base(base: str, used: list[str], grouped: dict[str, Any]) -> None:
    if not used or base in used:
        return
    if base in grouped:
        raise UserError(f"--base={base}: it has no finished and evaluated run")
    raise UserError(f"--base={base}: no such variant; use one of: {'; '.join(used)}")


def _read(used: dict[str, dict[int, Run]]) -> tuple[Asked, dict[str, Variant]]:
    asked, made = None, {}
    for label, seeds in progress.bar(used.items(), desc="reading", unit=" variants"):
        values = {}
        for seed, run in seeds.items():
            asked = asked or query_table.read_asked(run)
            values[seed] = query_table.read_values(run, asked)
        made[label] = Variant(label, seeds, values, _parameters(run))
    return asked, made


def _parameters(run: Run) -> int:
    return _count(config_lib.build_model(run.config, run.schema))


_count = functools.lru_cache(contextual_bert.count)


def _missing(
    grouped: dict[str, dict[int, Run]], lacking: dict[str, str], others: list[str]
) -> list[str]:
    every = sorted({seed for seeds in grouped.values() for seed in seeds})
    found = []
    for label, seeds in grouped.items():
        for run in seeds.values():
            if lacking[run.name]:
                found.append(f"{label}, seed {run.seed} ({run.name}): {lacking[run.name]}")
            elif not run.curve:
                found.append(f"{label}, seed {run.seed} ({run.name}): no validation rows")
        for seed in every:
            if seed not in seeds:
                having = sum(seed in other for other in grouped.values())
                found.append(
                    f"{label}, seed {seed}: no run, and {having} of the others have one"
                )
        if all(lacking[run.name] for run in seeds.values()):
            found.append(f"{label}: in no table, for no run of it is finished and evaluated")
    found += [f"{name}: holds no config.json, not a run" for name in others]
    measured = {
        run.name: "effects" in (run.evaluation or {})
        for seeds in grouped.values()
        for run in seeds.values()
        if not lacking[run.name]
    }
    if any(measured.values()):
        found += [
            f"{name}: evaluated without --effects" for name, has in measured.items() if not has
        ]
    return found
