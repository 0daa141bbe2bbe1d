"""Gives mutated inputs to the code that reads them: each is accepted or refused in one line.

    python -m tests.fuzz --count=100000 --seed=0 --target=records

An input is a function of seed, target and number: `--first=N --count=1` is input N alone.
Anything but a `UserError` of one printable line is a failure: another exception, a warning, a
hang, or memory that grows.
"""

import argparse
import contextlib
import dataclasses
import gc
import pathlib
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable

import psutil

from cbert import progress
from cbert.errors import UserError
from cbert.text_table import align
from tests import fuzz_targets, fuzz_text_targets
from tests.fuzz_targets import LONGEST_LINE

LONGEST_SECONDS = 20


class HangError(BaseException):
    """An input took too long; it is no `Exception`, so that no handler catches it."""


@dataclasses.dataclass
class Report:
    """The outcomes of a target's inputs; `failures` holds pairs of number and message."""

    target: str
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    memory: tuple[int, int] = (0, 0)
    failures: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    def cells(self) -> list[str]:
        before, after = (f"{size / 2**20:.0f}" for size in self.memory)
        numbers = (self.accepted + self.refused, self.accepted, self.refused)
        return [
            self.target,
            *(f"{number:,}" for number in (*numbers, len(self.failures))),
            f"{self.seconds:.1f}",
            f"{self.slowest:.2f}",
            f"{before} to {after}",
        ]


HEADS = ["target", "inputs", "accepted", "refused", "failed", "s", "slowest s", "memory MiB"]


def fuzz(target: str, count: int, seed: int = 0, first: int = 0, huge: float = 2e-3) -> Report:
    """Tries inputs `first` to `first + count` of a target."""
    report = Report(target)
    start = time.perf_counter()
    memory = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None  # It is faster.
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        _alarm(),
        warnings.catch_warnings(action="error"),
        TARGETS[target](pathlib.Path(folder)) as attempt,
    ):
        numbers = range(first, first + count)
        for number in progress.bar(numbers, desc=target, unit=" inputs"):
            # The first inputs fill caches and the allocator's pools.
            if number == first + count // 4:
                gc.collect()
                report.memory = (_memory(), 0)
            begun = time.perf_counter()
            _try(report, number, attempt, random.Random(f"{seed} {target} {number}"), huge)
            report.slowest = max(report.slowest, time.perf_counter() - begun)
        gc.collect()
        report.memory = (report.memory[0], _memory())
    report.seconds = time.perf_counter() - start
    return report


def _memory() -> int:
    """The memory of this process and of a server that it started, in bytes."""
    process = psutil.Process()
    children = process.children(recursive=True)
    return sum(each.memory_info().rss for each in (process, *children))


def _try(
    report: Report, number: int, attempt: Callable, source: random.Random, huge: float
) -> None:
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        attempt(source, huge)
        report.accepted += 1
    except UserError as error:
        report.refused += 1
        line = str(error)
        if not line.isprintable() or not 0 < len(line) < LONGEST_LINE:
            report.failures.append((number, f"not one printable line: {line[:600]!r}"))
    except (Exception, HangError):
        report.failures.append((number, traceback.format_exc(limit=-30)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def _alarm():
    def ring(*_: object) -> None:
        raise HangError(f"no answer in {LONGEST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


TARGETS = {
    "records": fuzz_targets.records,
    "schemas": fuzz_targets.schemas,
    "configs": fuzz_targets.configs,
    "queries": fuzz_targets.queries,
    "text_records": fuzz_text_targets.text_records,
    "texts": fuzz_text_targets.texts,
    "requests": fuzz_text_targets.requests,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000, help="inputs a target")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=[*TARGETS], help="one of them; all by default")
    chosen = parser.parse_args()
    reports = []
    for target in [chosen.target] if chosen.target else TARGETS:
        reports.append(fuzz(target, chosen.count, chosen.seed, chosen.first))
        for number, what in reports[-1].failures[:20]:
            print(f"{target} {number}: {what}", file=sys.stderr)
    print(align([HEADS, *(report.cells() for report in reports)]))
    sys.exit(any(report.failures for report in reports))


if __name__ == "__main__":
    main()
