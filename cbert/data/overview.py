"""A few numbers of each record, collected while the records pass by.

Legend: M records.
"""

import array
import collections
import math
from typing import Any

import numpy as np

from cbert import schema as schema_lib
from cbert.data.hashing import hash64
from cbert.data.records import SPLITS, TRAIN, Record, text_of

# What programs write for a missing value; NA alone may be a country.
MISSING_WORDS = frozenset({"NaN", "nan", "None", "null", "NULL", "<NA>", "N/A", "NaT"})


class Overview:
    """A few numbers of each record: its split, length, and hashes of its group and items.

    Attributes:
      items: How often each item occurs in all splits.
      observed: How many records have a value of each feature, in the order in which the
        features first appeared.
      held_out: In how many examples outside training each string of a feature occurs.
      missing_words: For each of `MISSING_WORDS`, how many records have it as the value of a
        field of texts or a feature, by the name of the field or feature.
      extremes: The least and the largest number of a feature outside training, each with the
        id of its record.
    """

    def __init__(self, kind: str) -> None:
        """kind: `set`, `sequence` or `text`, which decides what makes records equal."""
        self._kind = kind
        self._splits = array.array("B")
        self._lengths = array.array("Q")
        self._groups = array.array("Q")
        self._contents = array.array("Q")
        self._weights = math.inf, -math.inf
        self.items: collections.Counter[str] = collections.Counter()
        self.observed: dict[str, int] = {}
        self.held_out: dict[str, collections.Counter[str]] = {}
        self.extremes: dict[str, list[tuple[float, str]]] = {}
        self.missing_words: dict[str, collections.Counter[str]] = {}

    def __len__(self) -> int:
        return len(self._splits)

    def add(self, record: Record, split: str) -> None:
        """Takes note of a record."""
        contents: object = (
            sorted(record.items) if self._kind == schema_lib.SET else record.items
        )
        if self._kind == schema_lib.TEXT:
            contents = text_of(record).text, text_of(record).text_b
        self._splits.append(SPLITS.index(split))
        self._lengths.append(len(record.items))
        self._groups.append(hash64(record.group))
        self._contents.append(hash64(repr(contents)))
        least, largest = self._weights
        self._weights = min(least, record.weight), max(largest, record.weight)
        self._add_missing_words(record)
        self.items.update(record.items)
        for name, value in record.context.items():
            self.observed[name] = self.observed.get(name, 0) + (value is not None)
            if split != TRAIN:
                self._add_held_out(name, value if isinstance(value, list) else [value], record)

    def _add_missing_words(self, record: Record) -> None:
        """Takes note of strings that programs write in place of a missing value."""
        values = dict(record.context)
        if record.text is not None:
            values |= {name: getattr(record.text, name) for name in ("text", "text_b", "label")}
        for name, value in values.items():
            if isinstance(value, str) and value in MISSING_WORDS:
                self.missing_words.setdefault(value, collections.Counter())[name] += 1

    def _add_held_out(self, name: str, values: list[Any], record: Record) -> None:
        """Takes note of a feature's values, all strings or all numbers, or one None."""
        if not values or values[0] is None:
            return
        if isinstance(values[0], str):
            self.held_out.setdefault(name, collections.Counter()).update(set(values))
            return
        least, largest = (min(values), record.id), (max(values), record.id)
        known = self.extremes.setdefault(name, [least, largest])
        known[:] = min(known[0], least), max(known[1], largest)

    def indices(self, split: str) -> np.ndarray:
        """The indices of the records of a split, `int64`, in the order in which they came."""
        return np.flatnonzero(self._is_in(split))

    def _is_in(self, split: str) -> np.ndarray:
        """`bool [M]`."""
        return np.array(self._splits) == SPLITS.index(split)

    def lengths(self) -> np.ndarray:
        """Items, or tokens, of each record, `uint64 [M]`."""
        return np.array(self._lengths)

    def beyond_training(self) -> tuple[int, int]:
        """The longest training example, and how many of the other splits are longer."""
        lengths, training = self.lengths(), self._is_in(TRAIN)
        longest = int(lengths[training].max(initial=0))
        return longest, int((lengths[~training] > longest).sum())

    def set_lengths(self, lengths: np.ndarray) -> None:
        """Takes the tokens of each record, `int64 [M]`, which only a tokeniser can count."""
        self._lengths = array.array("Q", lengths.tolist())

    def weights(self) -> tuple[float, float] | None:
        """The least and the largest weight, 1 where a record has none; None where all are 1."""
        return None if self._weights == (1.0, 1.0) else self._weights

    def group_hashes(self) -> np.ndarray:
        """A hash of each record's group, `uint64 [M]`."""
        return np.array(self._groups)

    def groups(self) -> tuple[int, int]:
        """The number of groups, and the number of those that lie in several splits."""
        groups = self.group_hashes()
        of_splits = [np.unique(groups[self.indices(split)]) for split in SPLITS]
        _, counts = np.unique(np.concatenate(of_splits), return_counts=True)
        return len(counts), int((counts > 1).sum())

    def duplicates(self) -> int:
        """Examples outside training whose items, or texts, make up a training example too."""
        contents, training = np.array(self._contents), self._is_in(TRAIN)
        return int(np.isin(contents[~training], contents[training]).sum())
