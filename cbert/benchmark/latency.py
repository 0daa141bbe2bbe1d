"""The calls whose latency is measured, with items or words that are drawn at random."""

import functools
from collections.abc import Callable, Sequence

from cbert.data.random_streams import stream
from cbert.errors import UserError
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Query
from cbert.inference.text_checks import MASKED_LANGUAGE
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextQuery
from cbert.schema.target import ALL_PAIRS
from cbert.schema.tokenizer import MASK

# A name, the number of queries, and a call that predicts them.
Kind = tuple[str, int, Callable[[], object]]


def kinds(predictor: Predictor | TextPredictor) -> list[Kind]:
    """The kinds of calls of a predictor.

    Raises:
      UserError: no token of a model of texts is a word.
    """
    return _of_sets(predictor) if isinstance(predictor, Predictor) else _of_texts(predictor)


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
    found = [
        (f"complete {n}", n, functools.partial(predictor.complete_batch, queries[:n]))
        for n in predictor.program.batch_sizes
    ]
    return [*found, (f"score {size} items", 1, functools.partial(predictor.score, sets[0]))]


def _of_texts(predictor: TextPredictor) -> list[Kind]:
    """Predictions for texts of every length that the model pads to, in every batch size."""
    random = stream("latency texts")
    # Of such names each is one token and one word, wherever it stands.
    names = [name for name in predictor.schema.items if name.isascii() and name.isalpha()]
    if not names:
        raise UserError("no token of the vocabulary is a word; measure a run of other texts")
    target = predictor.schema.target
    pairs = target is not None and target.pairs == ALL_PAIRS
    found: list[Kind] = []
    for size, length in predictor.program.shapes:
        queries = [
            text_query(predictor.task, pairs, random.choice(names, length).tolist())
            for _ in range(size)
        ]
        call = functools.partial(predictor.predict_batch, queries)
        found.append((f"{size} of {length} tokens", size, call))
    return found


def text_query(task: str, pairs: bool, words: Sequence[str]) -> TextQuery:
    """A text or a pair of these words but those for which its special tokens stand."""
    if task == MASKED_LANGUAGE:
        return TextQuery(" ".join([MASK, *words[3:]]))
    if pairs:
        rest = words[3:]
        half = len(rest) // 2
        return TextQuery(" ".join(rest[:half]), text_b=" ".join(rest[half:]))
    return TextQuery(" ".join(words[2:]))
