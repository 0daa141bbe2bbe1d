"""The workload of the benchmark for a task of texts: random tokens, every text as long.

Legend: M texts, L tokens of each, V tokens of the vocabulary.
"""

import numpy as np

from cbert.data.columns import Split
from cbert.data.random_streams import stream
from cbert.errors import UserError
from cbert.schema import TEXT, Feature, Schema, Target
from cbert.schema.target import LABEL
from cbert.schema.tokenizer import CLS, SEP, SPECIAL_TOKENS, TokenizerOptions
from cbert.tasks.classification import Classification
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_language import MaskedLanguage

VALUES = ("a", "b", "c", "d")  # The labels.
WITH_TEXTS = (MaskedLanguage.name, Classification.name)


def make_schema(task: str, items: int, length: int, features: tuple[Feature, ...]) -> Schema:
    """A schema of texts.

    Args:
      task: One of `WITH_TEXTS`.
      items: V, with BERT's special tokens.
      length: L, with [CLS] and [SEP].
      features: The context's.

    Raises:
      UserError: the task is another one, or a text of that length has no token of its own.
    """
    if task not in WITH_TEXTS:
        raise UserError(
            f"task.name is {task!r}; the benchmark has sets for {MaskedItem.name}, and texts "
            f"for {' and '.join(WITH_TEXTS)}"
        )
    if length < 3:
        raise UserError(
            f"length is {length}, and a text has {CLS}, {SEP} and at least one more token; "
            "give length=3 or more"
        )
    names = (*SPECIAL_TOKENS, *(f"token{number}" for number in range(items)))[:items]
    has_labels = task == Classification.name
    target = Target(LABEL, VALUES, (1,) * len(VALUES)) if has_labels else None
    counts = (1,) * items
    return Schema(TEXT, length, names, counts, features, TokenizerOptions(), target)


def make_split(schema: Schema, count: int, context: dict[str, np.ndarray]) -> Split:
    """A split of M texts of uniformly drawn tokens, none of them special."""
    random = stream("benchmark texts")
    shape = (count, schema.max_items)
    first = len(SPECIAL_TOKENS)
    codes = random.integers(first, len(schema.items), shape, np.int32)
    codes[:, 0], codes[:, -1] = schema.codes[CLS], schema.codes[SEP]
    targets = {}
    if schema.target is not None:
        targets = {LABEL: random.integers(0, len(VALUES), count, np.int32)}
    names = [str(row) for row in range(count)]
    segments = {"segments": np.zeros(shape, np.int8)}
    contexts = ["{}"] * count
    return Split(names, names, contexts, codes, context, None, segments, targets)
