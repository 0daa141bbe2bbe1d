"""The setting of each method that is best on the validation split, among those of a sweep."""

import collections
import dataclasses

from cbert.errors import UserError
from cbert.report import variants
from cbert.report.run_directory import RunDirectory

Groups = dict[str, dict[int, RunDirectory]]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A variant among those of its method, one of which is chosen.

    Attributes:
      label: The variant's label, which names its setting.
      method: Its method, with the name of its control: `gs` or `gs, constant context`.
      validation: Seed to the best validation value of the metric that decides.
      chosen: Whether it is the one that the report keeps.
    """

    label: str
    method: str
    validation: dict[int, float]
    chosen: bool

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return sum(self.validation.values()) / len(self.validation)


def candidates(usable: Groups) -> list[Candidate]:
    """The variants, in their order, of which the best one of each method is chosen.

    Only variants with every seed that any of the method's has are compared, so that a setting
    of which a seed diverged is not chosen for the others, and what was tried with one seed
    gives way to what was then trained with five. The first of equal ones is chosen.

    Args:
      usable: Label to seed to run, of finished and evaluated runs alone.

    Raises:
      UserError: a run has no validation rows, or no variant of a method has all its seeds.
    """
    found = [
        Candidate(
            label,
            variants.method_and_control(label),
            {seed: _best(run) for seed, run in seeds.items()},
            chosen=False,
        )
        for label, seeds in usable.items()
    ]
    by_method: dict[str, list[Candidate]] = collections.defaultdict(list)
    for one in found:
        by_method[one.method].append(one)
    chosen = {_choose(of_method, usable) for of_method in by_method.values()}
    return [dataclasses.replace(one, chosen=one.label in chosen) for one in found]


def _best(run: RunDirectory) -> float:
    if run.best is None:
        raise UserError(f"{run.path} has no validation rows to choose a setting by")
    return run.best


def _choose(of_method: list[Candidate], usable: Groups) -> str:
    """The label of the best one."""
    seeds = {seed for one in of_method for seed in one.validation}
    complete = [one for one in of_method if len(one.validation) == len(seeds)]
    if not complete:
        names = ", ".join(map(str, sorted(seeds)))
        raise UserError(
            f"no setting of {of_method[0].method} has all of the seeds {names}, so that none "
            "can be chosen; train one with all of them"
        )
    sign = next(iter(usable[complete[0].label].values())).metric.sign
    return min(complete, key=lambda one: sign * one.mean).label
