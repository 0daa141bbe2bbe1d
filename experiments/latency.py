"""Measures how long predictions take, after warming up.

python -m experiments.latency --workdir=runs/stylist-gsu
"""

import functools
import statistics
import time
from collections.abc import Callable

import numpy as np
from absl import flags

import cbert
from cbert.data.random_streams import stream
from cbert.errors import UserError
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Query
from cbert.text_table import align
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "A run's directory.", required=True)
_EXPORTED = flags.DEFINE_bool("exported", False, "The directory holds an exported model.")
_ROUNDS = flags.DEFINE_integer("rounds", 100, "How many calls of each kind.", lower_bound=2)


def main() -> None:
    """Prints the median and the 95th percentile of each kind of call, in milliseconds."""
    started = time.perf_counter()
    load = cbert.load_exported if _EXPORTED.value else cbert.load
    predictor = load(_WORKDIR.value)
    if not isinstance(predictor, Predictor):
        raise UserError(f"{_WORKDIR.value} is a run of texts; give a run of sets or sequences")
    loaded = time.perf_counter()
    predictor.warm_up()
    warm = time.perf_counter()
    schema = predictor.schema
    print(
        f"{predictor.method}, {len(schema.items):,} items, dimension "
        f"{predictor.config.model.dimension}: loaded in {loaded - started:.1f} s, warmed up in "
        f"{warm - loaded:.1f} s\n"
    )
    rows = [["", "median ms", "95 % ms", "a query"]]
    for name, count, call in _kinds(predictor):
        times = [_milliseconds(call) for _ in range(_ROUNDS.value)]
        median, slow = statistics.median(times), float(np.quantile(times, 0.95))
        rows.append([name, f"{median:.2f}", f"{slow:.2f}", f"{median / count:.2f}"])
    print(align(rows))


def _kinds(predictor: Predictor) -> list[tuple[str, int, Callable[[], object]]]:
    """Name, number of queries, and a call that predicts them, on sets of four items."""
    random = stream("latency queries")
    names = predictor.schema.items
    size = min(4, predictor.schema.max_items, len(names))
    largest = predictor.program.batch_sizes[-1]
    sets = [
        [names[code] for code in random.choice(len(names), size, replace=False)]
        for _ in range(largest)
    ]
    queries = [Query(items) for items in sets]
    kinds = [
        (f"complete {n}", n, functools.partial(predictor.complete_batch, queries[:n]))
        for n in predictor.program.batch_sizes
    ]
    return [*kinds, (f"score {size} items", 1, functools.partial(predictor.score, sets[0]))]


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    command.run(main)
