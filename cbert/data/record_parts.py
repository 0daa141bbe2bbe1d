"""Records without some of what they held when they were given."""

import dataclasses

from cbert.data.hashing import hash64
from cbert.data.random_streams import stream
from cbert.data.records import Record
from cbert.schema import SEQUENCE


def without_features(record: Record, names: tuple[str, ...]) -> Record:
    """The record without some features, and without the reference, which knew them."""
    context = {name: value for name, value in record.context.items() if name not in names}
    return dataclasses.replace(record, context=context, reference=None)


def without_repeats(record: Record) -> Record:
    """The record with the first of equal items, and without a reference that knew the rest."""
    items = list(dict.fromkeys(record.items))
    if len(items) == len(record.items):
        return record
    return dataclasses.replace(record, items=items, reference=None)


def latest(record: Record, size: int) -> Record:
    """The end of a sequence, without a reference that knew the rest."""
    return dataclasses.replace(record, items=record.items[-size:], reference=None)


def subsampled(record: Record, size: int, kind: str) -> Record:
    """A random subset of a set, or a random window of a sequence, decided by the id."""
    generator = stream("subsample", hash64(record.id))
    if kind == SEQUENCE:
        start = int(generator.integers(len(record.items) - size + 1))
        positions = list(range(start, start + size))
    else:
        positions = sorted(generator.choice(len(record.items), size, replace=False).tolist())
    items = [record.items[position] for position in positions]
    return dataclasses.replace(record, items=items, reference=None)
