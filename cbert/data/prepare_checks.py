"""What `prepare` refuses of the records and of a schema that was given."""

import collections
import os
from collections.abc import Iterable

from cbert.data.collection import Collection
from cbert.data.record_store import RecordView
from cbert.data.records import VALIDATION, Record, in_blocks
from cbert.data.text import LONGEST_WORD
from cbert.errors import UserError, shown, warn
from cbert.schema import TEXT, MultiValued, NumberFeature, Schema
from cbert.schema.tokenizer import UNKNOWN
from cbert.schema.values import check_near

_UNREAD = 0.1  # The fraction of texts without a known word from which on a warning says so.


def validation(by_split: dict[str, RecordView]) -> None:
    """Refuses data without a validation split."""
    if not len(by_split[VALIDATION]):
        raise UserError(
            "the validation split is empty; give more groups, or split_weights=80,10,10, "
            "or records with a 'split' of their own"
        )


def pairs(texts: dict[str, RecordView], examples: dict[str, RecordView]) -> None:
    """Refuses a split of which no pair could be made."""
    for split, view in texts.items():
        if len(view) and not len(examples[split]):
            raise UserError(
                f"the {split} split has no pairs, because none of its documents has two texts; "
                "give the texts of one document the same 'group', or where pack joined them "
                "give max_length=N, a smaller one"
            )


def several_items(collection: Collection) -> None:
    """Warns where no example has a second item, from which the first could be told."""
    if collection.overview.lengths().max(initial=0) == 1:
        warn(
            "every example has one item, so that only the context can tell it; where a CSV "
            "file has lists of items, separator says what stands between them; where each "
            "letter is an item, as of a protein, put a separator between the letters; where a "
            "file has a row for each item, join the rows of each example"
        )


def readable_texts(unread: int, texts: int) -> None:
    """Warns where many of the texts are [UNK] alone."""
    if unread > _UNREAD * texts:
        warn(
            f"{unread:,} of {texts:,} texts are {UNKNOWN} alone, so that nothing of them is "
            "read: a vocabulary of capital letters needs lowercase=false, one of other texts "
            f"lacks their words, and a word above {LONGEST_WORD} characters is {UNKNOWN}; "
            "where each letter is a word, as of a protein, give a list of them as 'words'"
        )


def added_tokens(
    source: str | os.PathLike[str], added: tuple[str, ...], texts: Iterable[str]
) -> None:
    """Warns where training texts hold a token that was added to a vocabulary."""
    counts: collections.Counter[str] = collections.Counter()
    for text in texts if added else ():
        counts.update(token for token in added if token in text)
    if counts:
        found = ", ".join(f"{shown(token)} {count:,}" for token, count in counts.most_common(3))
        warn(
            f"{source}: the training texts hold tokens that were added to the vocabulary "
            f"(texts with it: {found}); they are cut into pieces like any other text, so that "
            "the model reads other tokens there than in transformers"
        )


def missing_words(collection: Collection) -> None:
    """Warns of values that look as if a program had written them for a missing one."""
    for word, counts in collection.overview.missing_words.items():
        found = ", ".join(f"{shown(name)} {count:,}" for name, count in counts.items())
        warn(
            f"{shown(word)} is a value like any other (records with it: {found}); where it "
            "stands for a missing one, write null in JSON, and in CSV an empty cell "
            '(pandas: na_rep=""), or give missing=WORD'
        )


def numbers(schema: Schema, collection: Collection) -> None:
    """Refuses a record whose number no model could read, naming it."""
    for feature in schema.features:
        if isinstance(feature, NumberFeature):
            for value, record_id in collection.overview.extremes.get(feature.name, ()):
                what = f"record {shown(record_id)}: context feature {shown(feature.name)}"
                check_near(what, value, feature.mean, feature.scale)


def _refuse_unfit(schema: Schema, block: Iterable[Record]) -> None:
    """Refuses the first record that a schema cannot encode, naming it."""
    for record in block:
        try:
            schema.encode_recorded([record.context])
        except UserError as error:
            raise UserError(
                f"record {shown(record.id)}: the schema does not fit: {error}"
            ) from None


def fit(schema: Schema, collection: Collection) -> None:
    """Refuses a schema that was given and does not fit; warns where it leaves values out."""
    lists = [feature for feature in schema.features if isinstance(feature, MultiValued)]
    cut: collections.Counter[str] = collections.Counter()
    for block in in_blocks(collection.everything()):
        try:
            schema.encode_recorded([record.context for record in block])
        except UserError:
            _refuse_unfit(schema, block)
            raise
        for feature in lists:  # All values that are not known have one code.
            coded = (
                {feature.codes.get(value) for value in record.context.get(feature.name) or ()}
                for record in block
            )
            cut[feature.name] += sum(len(codes) > feature.max_values for codes in coded)
    if schema.kind != TEXT and not any(i in schema.codes for i in collection.overview.items):
        raise UserError(
            "the schema does not fit: none of the data's items is in its vocabulary"
        )
    for feature in lists:
        if count := cut[feature.name]:
            warn(
                f"context {shown(feature.name)} has more than {feature.max_values} values in "
                f"{count:,} records; the model takes the first ones, by the schema's max_values"
            )
