"""Prepares a text data set: its vocabulary, its examples, and its target."""

import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator

from cbert.data import prepare_checks, text_examples, vocabulary
from cbert.data.collection import Collection
from cbert.data.infer_schema import FeatureAccumulator
from cbert.data.infer_target import TargetAccumulator
from cbert.data.prepare_options import TRAINED, TextOptions
from cbert.data.record_store import RecordView
from cbert.data.records import SPLITS, TRAIN, Record, text_of
from cbert.data.text import Tokenizer
from cbert.data.text_records import target_kinds
from cbert.errors import UserError, warn
from cbert.schema import TEXT, Schema, TokenizerOptions, schema_file
from cbert.schema.target import ANSWER, IS_NEXT, NOT_NEXT

MOST_BY_DEFAULT = 128  # Tokens.


def tokenizing_schema(train: RecordView, options: TextOptions) -> Schema:
    """A schema that can tokenise, and knows nothing else of the records yet."""
    if options.vocabulary == TRAINED:
        lowercase = options.lowercase is not False
        normalisation = TokenizerOptions(lowercase, strip_accents=lowercase)
        pieces = vocabulary.train(lambda: _texts(train), options.vocabulary_size, normalisation)
    else:
        pieces, normalisation = vocabulary.read(options.vocabulary, options.lowercase)
        added = vocabulary.added_tokens(options.vocabulary)
        prepare_checks.added_tokens(options.vocabulary, added, _texts(train))
    length = options.max_length or MOST_BY_DEFAULT
    schema = Schema(TEXT, length, pieces, (0,) * len(pieces), (), normalisation)
    schema_file.check(schema)
    return schema


def warn_of_targets(train: RecordView, schema: Schema) -> None:
    """Warns where the first records have a target that a given schema lacks."""
    first = map(text_of, itertools.islice(train, 100))
    kinds = {kind for text in first for kind in target_kinds(text)}
    if kinds and schema.target is None:
        warn(
            f"the records have {', '.join(sorted(kinds))}, and the schema has no target, so "
            "that it is left out; for its vocabulary alone give vocabulary=schema.json"
        )


def with_stride_of(schema: Schema, options: TextOptions) -> TextOptions:
    """The options with the stride of the schema where they have none; raises `UserError`."""
    known = schema.target.stride if schema.target else 0
    options = dataclasses.replace(options, stride=options.stride or known)
    options.check()
    return options


def with_stride(schema: Schema, stride: int) -> Schema:
    """The schema with the stride of the windows that were made; 0 changes nothing.

    Raises:
      UserError: there are windows, but the target is no answer.
    """
    if not stride:
        return schema
    if schema.target is None or schema.target.kind != ANSWER:
        raise UserError(
            "stride makes windows of passages with answers, and the target is another; leave "
            "it out, or give target=answer"
        )
    return dataclasses.replace(schema, target=dataclasses.replace(schema.target, stride=stride))


def _texts(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        text = text_of(record)
        yield text.text
        if text.text_b is not None:
            yield text.text_b


def examples(
    collection: Collection,
    schema: Schema,
    options: TextOptions,
    directory: pathlib.Path,
    stack: contextlib.ExitStack,
) -> Collection:
    """The records as they will be written: packed, paired or in windows if the options say so.

    Args:
      collection: The records as they were given.
      schema: Can tokenise.
      options: The options of texts.
      directory: The directory for new records' temporary files.
      stack: Removes them in the end.
    """
    tokenizer = Tokenizer(schema)
    length = tokenizer.max_length
    steps: list[Callable[[Collection, str], Iterable[Record]]] = []
    if options.stride:
        steps.append(
            lambda records, split: text_examples.windows(
                records.by_split()[split], tokenizer, options.stride
            )
        )
    if options.pack:
        room = (length - 3) // 2 if options.pairs else length - 2
        steps.append(
            lambda records, split: text_examples.packed(
                records.by_document(split)[0], tokenizer, room
            )
        )
    if options.pairs:
        steps.append(
            lambda records, split: text_examples.next_sentence_pairs(
                *records.by_document(split)
            )
        )
    for step in steps:
        following = stack.enter_context(Collection(directory, TEXT))
        for split in SPLITS:
            for record in step(collection, split):
                following.add(record, split)
        collection = following
    return collection


def infer(
    collection: Collection,
    schema: Schema,
    features: FeatureAccumulator,
    options: TextOptions,
) -> Schema:
    """The schema with the features and the target that the training split has.

    Raises:
      UserError: the data do not make a schema.
    """
    order = (IS_NEXT, NOT_NEXT) if options.pairs else ()
    target = TargetAccumulator(options.target, order)
    for split, records in collection.by_split().items():
        for record in records:
            features.make_room(record.context)
            if split == TRAIN:
                features.observe(record.context)
                target.observe(text_of(record))
    return dataclasses.replace(schema, features=features.finish(), target=target.finish())
