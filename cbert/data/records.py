"""Records, the one form in which data enter."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from cbert.data.text_records import Text

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")
_BLOCK = 1024  # Few, for their texts, tokens and vectors may be long.


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One example as the user wrote it.

    Attributes:
      id: Names the example in every output.
      group: Examples of one group (a person, a document) stay in one split.
      items: The set or sequence; empty where the example is a text.
      context: Feature name to string, list of strings, number, list of numbers, or None.
      split: The split that the example must go to; empty where the group decides.
      reference: The best possible prediction of each item, where it is known: the lists
        `log_probability` (nats) and `rank`, and `without_context`, the log-probability of the
        best possible prediction that does not see the context, where that is known, too.
      text: The text and its targets; None where the example is a set or a sequence.
      weight: What the example counts in the training loss, 0 or more.
    """

    id: str
    group: str
    items: list[str]
    context: dict[str, Any]
    split: str
    reference: dict[str, list[float]] | None
    text: Text | None = None
    weight: float = 1.0


def text_of(record: Record) -> Text:
    """The text of a record of a text data set."""
    assert record.text is not None
    return record.text


def in_blocks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in lists that are tokenised or encoded at once."""
    remaining = iter(records)
    while block := list(itertools.islice(remaining, _BLOCK)):
        yield block
