"""From records to prepared data, with a summary of what they hold.

The records pass through once and wait on disk, where the schema is inferred from them; memory
holds some fifty bytes of each, however many there are.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cbert import schema as schema_lib
from cbert.data import builder, infer_schema, splits
from cbert.data.record_store import RecordStore, RecordView
from cbert.data.records import SPLITS, Record
from cbert.data.summary import Overview, Usage, summarize
from cbert.errors import UserError, shown
from cbert.schema import Schema

LONGER = ("leave_out", "subsample")
_BLOCK = 1024  # Records that are encoded at once, for vectors may be long.


@dataclasses.dataclass(frozen=True)
class Options:
    """What `prepare` may be told; each is a flag of the same name."""

    kind: str = schema_lib.SET
    min_count: int = 2
    value_min_count: int = 2
    max_items: int | None = None
    longer: str = "leave_out"
    split_weights: tuple[int, ...] = splits.WEIGHTS
    widths: dict[str, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    drop: tuple[str, ...] = ()
    overwrite: bool = False


def prepare(
    records: Iterable[Record],
    data_dir: str | pathlib.Path,
    name: str,
    options: Options,
    schema: Schema | Callable[[RecordView], Schema] | None = None,
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Splits, infers or checks the schema, writes the data set, and summarises it.

    Args:
      records: Iterated over once.
      data_dir: Where prepared data sets lie.
      name: The data set's name.
      options: What the user decided.
      schema: Used instead of an inferred one; or the function that makes it of the training
        split.

    Returns:
      The data set's directory and the summary that `format_summary` prints.

    Raises:
      UserError: the records or the schema do not make a data set; nothing is written.
    """
    splits.check_weights(options.split_weights)
    folder = builder.directory(data_dir, name).parent
    with RecordStore(folder.parent) as store:
        overview = Overview(schema.kind if isinstance(schema, Schema) else options.kind)
        max_items = schema.max_items if isinstance(schema, Schema) else options.max_items
        longer = _collect(records, store, overview, max_items, options)
        by_split = {split: RecordView(store, overview.indices(split)) for split in SPLITS}
        everything = RecordView(store, np.arange(len(store)))
        schema = _schema(schema, by_split, options)
        schema.check_room(max(map(len, by_split.values())))
        usage = _usage(schema, everything, int(overview.lengths().sum()))
        by_split = {split: view for split, view in by_split.items() if len(view)}
        written = builder.write(data_dir, name, by_split, schema, options.overwrite)
    return written, summarize(overview, usage, schema, longer)


def _collect(
    records: Iterable[Record],
    store: RecordStore,
    overview: Overview,
    max_items: int | None,
    options: Options,
) -> int:
    """Stores the records without what is dropped; counts those longer than `max_items`."""
    longer = 0
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record.context))
        if options.drop:
            record = _without(record, options.drop)
        if max_items is not None and len(record.items) > max_items:
            longer += 1
            if options.longer == "leave_out":
                continue
            record = _subsampled(record, max_items, options.kind)
        store.append(record)
        overview.add(record, splits.split_of(record, options.split_weights))
    for name in options.drop:
        if name not in names:
            raise UserError(f"drop names {shown(name)}; the features are: {', '.join(names)}")
    if longer and not len(store):
        raise UserError(f"every example is longer than max_items={max_items}; raise it")
    return longer


def _without(record: Record, names: tuple[str, ...]) -> Record:
    """The record without some features, and without the reference, which knew them."""
    context = {name: value for name, value in record.context.items() if name not in names}
    return dataclasses.replace(record, context=context, reference=None)


def _subsampled(record: Record, size: int, kind: str) -> Record:
    """A random subset of a set, or a random window of a sequence, decided by the id."""
    seed = int(splits.uniform(f"subsample {record.id}") * 2**53)
    generator = np.random.default_rng(seed)
    if kind == schema_lib.SEQUENCE:
        start = int(generator.integers(len(record.items) - size + 1))
        positions = list(range(start, start + size))
    else:
        positions = sorted(generator.choice(len(record.items), size, replace=False).tolist())
    items = [record.items[position] for position in positions]
    return dataclasses.replace(record, items=items, reference=None)


def _schema(
    given: Schema | Callable[[RecordView], Schema] | None,
    by_split: dict[str, RecordView],
    options: Options,
) -> Schema:
    if given is None:
        return _inferred(by_split, options)
    schema = given if isinstance(given, Schema) else given(by_split[SPLITS[0]])
    kept = tuple(f for f in schema.features if f.name not in options.drop)
    return dataclasses.replace(schema, features=kept)


def _inferred(by_split: dict[str, RecordView], options: Options) -> Schema:
    if not len(by_split["validation"]):
        raise UserError(
            "the validation split is empty; give more groups, other split_weights, or "
            "records with a 'split' of their own"
        )
    accumulator = infer_schema.SchemaAccumulator(
        options.kind,
        options.min_count,
        options.value_min_count,
        options.max_items,
        options.widths,
        options.kinds,
    )
    for split, records in by_split.items():
        take = accumulator.observe if split == SPLITS[0] else accumulator.make_room
        for record in records:
            take(record)
    return accumulator.finish()


def _usage(schema: Schema, records: Iterable[Record], items: int) -> Usage:
    """Checks that the schema fits the records, which have so many items in all."""
    usage, iterator = Usage(schema), iter(records)
    while block := list(itertools.islice(iterator, _BLOCK)):
        usage.add(block)
        try:
            schema.encode_contexts([record.context for record in block])
        except UserError as error:
            raise UserError(f"the schema does not fit: {error}") from None
    if usage.unknown.total() == items:
        raise UserError(
            "the schema does not fit: none of the data's items is in its vocabulary"
        )
    return usage
