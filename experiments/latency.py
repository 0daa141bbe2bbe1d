"""Measures how long predictions take, after warming up, with items or words drawn at random.

python -m experiments.latency --workdir=runs/stylist-gsu
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
from absl import flags

import cbert
from cbert.benchmark.latency import kinds
from cbert.errors import UserError
from cbert.inference.predictor import Predictor
from cbert.text_table import align
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "A run's directory.", required=True)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "The checkpoint: best, last or a step.")
_EXPORTED = flags.DEFINE_bool("exported", False, "The directory holds an exported model.")
_ROUNDS = flags.DEFINE_integer("rounds", 100, "How many calls of each kind.", lower_bound=2)


def main() -> None:
    """Prints the median and the 95th percentile of each kind of call, in milliseconds."""
    started = time.perf_counter()
    if _EXPORTED.value and _CHECKPOINT.present:
        raise UserError("--checkpoint cannot be given together with --exported")
    if _EXPORTED.value:
        predictor = cbert.load_exported(_WORKDIR.value)
    else:
        predictor = cbert.load(_WORKDIR.value, _CHECKPOINT.value)
    loaded = time.perf_counter()
    predictor.warm_up()
    warm = time.perf_counter()
    what = "items" if isinstance(predictor, Predictor) else "tokens"
    print(
        f"{predictor.method}, {len(predictor.schema.items):,} {what}, "
        f"dimension {predictor.config.model.dimension}: loaded in {loaded - started:.1f} s, "
        f"warmed up in {warm - loaded:.1f} s\n"
    )
    rows = [["", "median ms", "95 % ms", "a query"]]
    for name, count, call in kinds(predictor):
        times = [_milliseconds(call) for _ in range(_ROUNDS.value)]
        median, slow = statistics.median(times), float(np.quantile(times, 0.95))
        rows.append([name, f"{median:.2f}", f"{slow:.2f}", f"{median / count:.2f}"])
    print(align(rows))


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    command.run(main)
