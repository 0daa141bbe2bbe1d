"""Measures how long predictions take, after warming up, with items or words drawn at random.

python -m experiments.latency --workdir=runs/stylist-gsu
"""

import functools
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from absl import flags

import cbert
from cbert.data.random_streams import stream
from cbert.errors import UserError
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Query
from cbert.inference.text_checks import MASKED_LANGUAGE
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextQuery
from cbert.schema.target import ALL_PAIRS
from cbert.schema.tokenizer import MASK
from cbert.text_table import align
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "A run's directory.", required=True)
_EXPORTED = flags.DEFINE_bool("exported", False, "The directory holds an exported model.")
_ROUNDS = flags.DEFINE_integer("rounds", 100, "How many calls of each kind.", lower_bound=2)

# A name, the number of queries, and a call that predicts them.
Kind = tuple[str, int, Callable[[], object]]


def main() -> None:
    """Prints the median and the 95th percentile of each kind of call, in milliseconds."""
    started = time.perf_counter()
    load = cbert.load_exported if _EXPORTED.value else cbert.load
    predictor = load(_WORKDIR.value)
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
    kinds = _of_sets(predictor) if isinstance(predictor, Predictor) else _of_texts(predictor)
    for name, count, call in kinds:
        times = [_milliseconds(call) for _ in range(_ROUNDS.value)]
        median, slow = statistics.median(times), float(np.quantile(times, 0.95))
        rows.append([name, f"{median:.2f}", f"{slow:.2f}", f"{median / count:.2f}"])
    print(align(rows))


def _of_sets(predictor: Predictor) -> list[Kind]:
    """Predictions for sets of four items."""
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


def _of_texts(predictor: TextPredictor) -> list[Kind]:
    """Predictions for texts of every length that the model pads to, in every batch size."""
    random = stream("latency queries")
    # Of such names each is one token and one word, wherever it stands.
    names = [name for name in predictor.schema.items if name.isascii() and name.isalpha()]
    if not names:
        raise UserError(
            f"{_WORKDIR.value} has no token that is a word; its texts are unlike any"
        )
    target = predictor.schema.target
    pairs = target is not None and target.pairs == ALL_PAIRS
    kinds: list[Kind] = []
    for size, length in predictor.program.shapes:
        queries = [
            _text_query(predictor.task, pairs, random.choice(names, length).tolist())
            for _ in range(size)
        ]
        call = functools.partial(predictor.predict_batch, queries)
        kinds.append((f"{size} of {length} tokens", size, call))
    return kinds


def _text_query(task: str, pairs: bool, words: Sequence[str]) -> TextQuery:
    """A text or a pair of these words but those for which its special tokens stand."""
    if task == MASKED_LANGUAGE:
        return TextQuery(" ".join([MASK, *words[3:]]))
    if pairs:
        half = len(words) // 2
        return TextQuery(" ".join(words[3:half]), text_b=" ".join(words[half:]))
    return TextQuery(" ".join(words[2:]))


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    command.run(main)
