"""The data of a report: the variants of a sweep with their seeds, on the same queries."""

import dataclasses
import functools
import pathlib
from typing import Any

from cbert import progress
from cbert.data.records import TEST
from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.report import choice, query_table, run_directory, variants
from cbert.report.choice import Candidate
from cbert.report.query_table import QueryTable, Reported
from cbert.report.run_directory import RunDirectory
from cbert.schema.target import NUMBER
from cbert.tasks.metric import Metric
from cbert.tasks.text_task import TextTask
from cbert.training import config as config_lib
from cbert.training import workdir

MARGIN = 0.01  # Nats, as a fraction one percent, or of a regression's variance.


@dataclasses.dataclass(frozen=True)
class Variant:
    """Finished and evaluated runs that differ only in the seed.

    Attributes:
      runs: Seed to run.
      measured: Seed to the run's metrics.
      parameters: The number of parameters, counted as in the paper's Table 1.
    """

    runs: dict[int, RunDirectory]
    measured: dict[int, Reported]
    parameters: int


@dataclasses.dataclass(frozen=True)
class ReportData:
    """Everything that a report is made from.

    Attributes:
      directory: The sweep's directory.
      split: The split that the runs were evaluated on.
      base: The label of the variant with which the others are compared first.
      variants: Label to variant, in the order of the tables.
      metrics: All metrics of the task; the first one decides.
      shown: Those that the page shows.
      queries: The queries, and the metrics of the baselines.
      margin: Variants that are shown to be closer than this in the deciding metric are level.
      settings: The fields named in `run_directory.SETTINGS`.
      missing: One line for each thing that the report lacks.
      candidates: The variants among which one was chosen for each method; empty where all are
        kept.
    """

    directory: pathlib.Path
    split: str
    base: str
    variants: dict[str, Variant]
    metrics: tuple[Metric, ...]
    shown: tuple[Metric, ...]
    queries: QueryTable
    margin: float
    settings: dict[str, Any]
    missing: list[str]
    candidates: list[Candidate]

    @property
    def folder(self) -> pathlib.Path:
        """Where the report is written: each split, and a choice of settings, has its own."""
        parts = [run_directory.REPORT, *([] if self.split == TEST else [self.split])]
        return self.directory / "-".join([*parts, *["best_settings"] * bool(self.candidates)])

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        return self.metrics[0]


def load(
    directory: str | pathlib.Path,
    split: str,
    base: str = "",
    margin: float | None = None,
    best_settings: bool = False,
) -> ReportData:
    """Reads the directory of a sweep.

    Args:
      directory: The directory.
      split: The split that the runs were evaluated on.
      base: The label of the variant that the others are compared with first; empty takes that
        of the method `none`, or the first one if there is none or several.
      margin: See `ReportData`; in nats, or as a fraction for a metric in percent. None takes
        0.01, or for a regression 0.01 of the variance of the numbers, a hundredth of R².
      best_settings: Whether to keep one variant of each method, see `choice.candidates`.

    Raises:
      UserError: no run can be reported, the runs cannot be compared, or no variant is `base`.
    """
    directory = pathlib.Path(directory).expanduser()
    runs, others = run_directory.read_all(directory, split)
    run_directory.check_comparable(runs)
    unusable = {run.name: run.unusable(split) for run in runs}
    # Of two that are the same run, `group` takes the first.
    groups = variants.group(sorted(runs, key=lambda run: bool(unusable[run.name])))
    usable = {
        label: kept
        for label, seeds in groups.items()
        if (kept := {seed: run for seed, run in seeds.items() if not unusable[run.name]})
    }
    candidates = choice.candidates(usable) if best_settings else []
    _leave_out([one.label for one in candidates if not one.chosen], usable, groups)
    base = _full_name(base, list(usable), list(groups)) if base else _first(list(usable))
    if not usable:
        name, why = next(iter(unusable.items()))
        raise UserError(
            f"no run of {directory} can be reported: {name}, for example, is {why}; train it "
            f"and evaluate it on the {split} split"
        )
    queries, loaded = _read(usable)
    evaluation = queries.run.evaluation or {}
    settings = {name: evaluation[name] for name in run_directory.SETTINGS}
    missing = _missing(groups, unusable, others)
    return ReportData(
        directory=directory,
        split=split,
        base=base,
        variants=loaded,
        metrics=queries.run.task.metrics,
        shown=query_table.reported(queries.run.task),
        queries=queries,
        margin=_usual_margin(queries.run) if margin is None else margin,
        settings=settings,
        missing=missing,
        candidates=candidates,
    )


def _leave_out(labels: list[str], usable: choice.Groups, groups: choice.Groups) -> None:
    """Removes settings that were not chosen, but not from the groups where they lack a run.

    Such runs are listed as missing, because with them the setting might have been chosen.
    """
    for label in labels:
        if len(usable[label]) == len(groups[label]):
            del groups[label]
        del usable[label]


def _usual_margin(run: RunDirectory) -> float:
    """The margin where none was given, in the units of the deciding metric."""
    numbers = isinstance(run.task, TextTask) and run.task.target == NUMBER
    return MARGIN * (run.schema.known_target.scale**2 if numbers else 1.0)


def _first(usable: list[str]) -> str:
    """The base variant where none was named."""
    without = [one for one in usable if one.split()[0] == "none" and ", " not in one]
    return without[0] if len(without) == 1 else "".join(usable[:1])


def _full_name(base: str, usable: list[str], labels: list[str]) -> str:
    """The base variant's label; a method stands for its only variant, such as `none rate=1`."""
    if not usable or base in usable:
        return base
    if base in labels:
        raise UserError(
            f"the base variant {base!r} has no finished and evaluated run; finish one, or use "
            f"one of: {'; '.join(usable)}"
        )
    # What follows a comma makes a baseline of its own, such as `none, wide`.
    of_method = [one for one in usable if one.startswith(f"{base} ") and ", " not in one]
    if len(of_method) == 1:
        return of_method[0]
    raise UserError(f"no variant is called {base!r}; use one of: {'; '.join(usable)}")


def _read(
    usable: dict[str, dict[int, RunDirectory]],
) -> tuple[QueryTable, dict[str, Variant]]:
    first = next(run for seeds in usable.values() for run in seeds.values())
    queries, loaded = query_table.read_queries(first), {}
    for label, seeds in progress.bar(usable.items(), desc="reading", unit=" variants"):
        measured = {seed: query_table.read_metrics(run, queries) for seed, run in seeds.items()}
        parameters = _parameters(next(iter(seeds.values())))
        loaded[label] = Variant(seeds, measured, parameters)
    return queries, loaded


def _parameters(run: RunDirectory) -> int:
    return _count(config_lib.build_model(run.config, run.schema))


_count = functools.lru_cache(parameter_tree.table_1_count)


def _missing(
    groups: dict[str, dict[int, RunDirectory]],
    unusable: dict[str, str],
    others: list[pathlib.Path],
) -> list[str]:
    """One line for each run, seed or measurement that the report lacks."""
    every_seed = sorted({seed for seeds in groups.values() for seed in seeds})
    lines = []
    for label, seeds in groups.items():
        for run in seeds.values():
            if unusable[run.name]:
                lines.append(f"{label}, seed {run.seed} ({run.name}): {unusable[run.name]}")
            elif not run.curve:
                lines.append(f"{label}, seed {run.seed} ({run.name}): no validation rows")
        for seed in every_seed:
            if seed not in seeds:
                count = sum(seed in other for other in groups.values())
                having = (
                    f"{count} other variants have" if count > 1 else "one other variant has"
                )
                lines.append(f"{label}, seed {seed}: no run, but {having} one")
        if all(unusable[run.name] for run in seeds.values()):
            lines.append(f"{label}: in no table, because none of its runs can be used")
    for path in others:
        log = path / workdir.LOG
        why = f"; {log} says why" if log.exists() else ""
        lines.append(f"{path.name}: not a run, because it holds no config.json{why}")
    return lines + _without_importance(groups, unusable)


def _without_importance(
    groups: dict[str, dict[int, RunDirectory]], unusable: dict[str, str]
) -> list[str]:
    """The runs that lack feature importance, if it was measured for any other run.

    A run that reads no context has none to lack.
    """
    measured = {
        run.name: "feature_importance" in (run.evaluation or {})
        for seeds in groups.values()
        for run in seeds.values()
        if not unusable[run.name] and config_lib.reads_context(run.config)
    }
    if not any(measured.values()):
        return []
    return [
        f"{name}: evaluated without feature importance"
        for name, was_measured in measured.items()
        if not was_measured
    ]
