"""From records to prepared data, with a summary of what they hold.

The records pass through once, while the schema of sets and sequences is inferred from them, and
wait on disk; memory holds some seventy bytes of each, however many there are.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from cbert import files
from cbert.data import (
    builder,
    infer_schema,
    prepare_checks,
    prepare_text,
    record_parts,
    splits,
    stratified_splits,
    text_examples,
)
from cbert.data.collection import Collection
from cbert.data.prepare_options import LATEST, LEAVE_OUT, PrepareOptions
from cbert.data.record_store import RecordView
from cbert.data.records import TRAIN, Record
from cbert.data.summary import summarize
from cbert.data.token_usage import TokenUsage
from cbert.data.validator import DROP
from cbert.errors import UserError, shown, warn
from cbert.schema import TEXT, Schema, schema_file


def prepare(
    records: Iterable[Record],
    data_dir: str | pathlib.Path,
    name: str,
    options: PrepareOptions,
    schema: Schema | Callable[[RecordView], Schema] | None = None,
    description: str = builder.AS_GIVEN,
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Splits, infers or checks the schema, writes the data set, and summarises it.

    Args:
      records: Iterated over once.
      data_dir: Where prepared data sets lie.
      name: The data set's name.
      options: What the user decided.
      schema: Used instead of an inferred one; or the function that makes it of the training
        split.
      description: What the data are, for `dataset_info.json`.

    Returns:
      The data set's directory and the summary that `format_summary` prints.

    Raises:
      UserError: the records or the schema do not make a data set; nothing is written.
    """
    options.check(needs_training=not isinstance(schema, Schema))
    folder = builder.check_new(data_dir, name, options.overwrite).parent
    files.check_writable(folder)
    with contextlib.ExitStack() as stack:
        collection = stack.enter_context(Collection(folder.parent, options.kind))
        given, tokens = schema, None
        accumulator = _accumulator(options) if given is None else None
        longer, repeats = _collect(records, collection, given, accumulator, options)
        prepare_checks.missing_words(collection)
        if options.kind == TEXT:
            collection, schema, tokens = _text(collection, given, options, folder.parent, stack)
            longer = tokens.cut
        elif given is not None:
            schema = _schema(given, collection.by_split(), options)
        else:
            assert accumulator is not None
            schema = _inferred(accumulator, collection)
        by_split = {split: view for split, view in collection.by_split().items() if len(view)}
        schema.check_room(max(map(len, by_split.values())))
        if given is None:
            prepare_checks.numbers(schema, collection)
        else:
            prepare_checks.fit(schema, collection)
        is_weighted = collection.overview.weights() is not None
        written = builder.write(
            data_dir,
            name,
            by_split,
            schema,
            overwrite=options.overwrite,
            is_weighted=is_weighted,
            groups_across_splits=collection.overview.groups()[1],
            description=description,
        )
    return written, summarize(collection.overview, schema, longer, tokens, repeats)


def _inferred(accumulator: infer_schema.SchemaAccumulator, collection: Collection) -> Schema:
    """The schema of sets or sequences, once what needs none is checked."""
    prepare_checks.validation(collection.by_split())
    prepare_checks.several_items(collection)
    return accumulator.finish()


def _accumulator(options: PrepareOptions) -> infer_schema.SchemaAccumulator | None:
    """What infers the schema of sets and sequences; texts are seen again once tokenised."""
    if options.kind == TEXT:
        return None
    return infer_schema.SchemaAccumulator(
        options.kind,
        options.min_count,
        options.value_min_count,
        options.max_items,
        options.widths,
        options.kinds,
    )


def _collect(
    records: Iterable[Record],
    collection: Collection,
    given: object,
    accumulator: infer_schema.SchemaAccumulator | None,
    options: PrepareOptions,
) -> tuple[int, int]:
    """Stores the records without what is dropped.

    Returns:
      How many were longer than `max_items`, and how many repeated items were dropped.
    """
    max_items = given.max_items if isinstance(given, Schema) else options.max_items
    longer, placed, repeats = 0, 0, 0
    names: dict[str, None] = {}
    for record in records:
        placed += bool(record.split)
        names.update(dict.fromkeys(record.context))
        if options.drop:
            record = record_parts.without_features(record, options.drop)
        if options.repeats == DROP:
            before, record = len(record.items), record_parts.without_repeats(record)
            repeats += before - len(record.items)
        if options.text.pack or options.text.pairs:
            text_examples.check_plain(record)
        if max_items is not None and len(record.items) > max_items:
            longer += 1
            if options.longer == LEAVE_OUT:
                continue
            if options.longer == LATEST:
                record = record_parts.latest(record, max_items)
            else:
                record = record_parts.subsampled(record, max_items, options.kind)
        if options.text.stratify and record.split:
            raise UserError(
                f"stratify decides the splits, and record {shown(record.id)} has a split of "
                "its own; leave stratify out"
            )
        split = splits.split_of(record, options.split_weights)
        collection.add(record, split)
        if accumulator is not None:
            take = accumulator.observe if split == TRAIN else accumulator.make_room
            take(record)
    for name in options.drop:
        if name not in names:
            raise UserError(f"drop names {shown(name)}; the features are: {', '.join(names)}")
    if placed and tuple(options.split_weights) != splits.WEIGHTS:
        warn(
            "split_weights changes nothing for records with a split of their own "
            f"({placed:,}); leave that field out if it shall"
        )
    if longer and not len(collection):
        fix = "longer=subsample" if isinstance(given, Schema) else "max_items=N, a larger one"
        raise UserError(f"every example is longer than {max_items}; give {fix}")
    return longer, repeats


def _schema(
    given: Schema | Callable[[RecordView], Schema],
    by_split: dict[str, RecordView],
    options: PrepareOptions,
) -> Schema:
    schema = given if isinstance(given, Schema) else given(by_split[TRAIN])
    kept = tuple(f for f in schema.features if f.name not in options.drop)
    return dataclasses.replace(schema, features=kept)


def _text(
    collection: Collection,
    given: Schema | Callable[[RecordView], Schema] | None,
    options: PrepareOptions,
    directory: pathlib.Path,
    stack: contextlib.ExitStack,
) -> tuple[Collection, Schema, TokenUsage]:
    """The examples of a text data set, their schema, and how they use it."""
    if options.text.stratify:
        weights = options.split_weights
        collection = stratified_splits.restratified(collection, weights, directory, stack)
    if given is None:
        prepare_checks.validation(collection.by_split())
        training = collection.by_split()[TRAIN]
        schema = prepare_text.tokenizing_schema(training, options.text)
    else:
        schema = _schema(given, collection.by_split(), options)
        prepare_text.warn_of_targets(collection.by_split()[TRAIN], schema)
    text = prepare_text.with_stride_of(schema, options.text)
    examples = prepare_text.examples(collection, schema, text, directory, stack)
    prepare_checks.pairs(collection.by_split(), examples.by_split())
    if given is None:
        features = infer_schema.FeatureAccumulator(
            options.value_min_count, options.widths, options.kinds
        )
        schema = prepare_text.infer(examples, schema, features, text)
    schema = prepare_text.with_stride(schema, text.stride)
    tokens = TokenUsage(examples, schema)
    prepare_checks.readable_texts(tokens.unread, len(examples))
    examples.overview.set_lengths(tokens.lengths)
    if given is None:
        schema = tokens.counted(schema)
        if options.text.max_length is None:
            schema = dataclasses.replace(schema, max_items=tokens.longest())
        schema_file.check(schema)
    return examples, schema, tokens
