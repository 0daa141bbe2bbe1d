"""Texts and their targets as columns of a split.

Legend: M examples, L tokens of the longest.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cbert.data.text import Segment, Tokenizer, Tokens
from cbert.data.text_records import Text
from cbert.errors import UserError, shown
from cbert.schema import PAD_ITEM, UNKNOWN_LABEL, Schema, Target
from cbert.schema.target import ANSWER, LABEL, LABELS, NUMBER, TAGS
from cbert.spans import in_passage

Arrays = dict[str, np.ndarray]

CUT_OFF = -1  # The first and the last token of an answer that was cut off with its passage.


def segments(text: Text, schema: Schema) -> tuple[Segment, str | None]:
    """The parts of a text to tokenise: its words if it has tags, else the text or the pair."""
    tagged = schema.target is not None and schema.target.kind == TAGS
    if tagged and text.words is not None:
        return text.words, None
    return text.text, text.text_b


def tokenized(texts: Sequence[Text], schema: Schema, tokenizer: Tokenizer) -> list[Tokens]:
    """The tokens of texts."""
    return tokenizer.encode_all([segments(text, schema) for text in texts])


def encode(
    texts: Sequence[Text], schema: Schema, tokenizer: Tokenizer
) -> tuple[np.ndarray, Arrays, Arrays]:
    """The items, the token columns and the targets of texts; see `columns.Split`.

    Raises:
      UserError: a text's label is not of the kind of the schema's target.
    """
    rows = tokenized(texts, schema, tokenizer)
    token_columns = {"segments": _padded(rows, schema, 0, np.int8, lambda row: row.segments)}
    targets: Arrays = {}
    if schema.target is not None:
        targets = _targets(texts, rows, schema.target)
        if schema.target.kind == TAGS:
            token_columns |= _tag_columns(texts, rows, schema, schema.target)
    items = _padded(rows, schema, PAD_ITEM, np.int32, lambda row: row.codes)
    return items, token_columns, targets


def _padded(
    rows: Sequence[Tokens],
    schema: Schema,
    padding: int,
    dtype: type,
    values: Callable[[Tokens], np.ndarray],
) -> np.ndarray:
    """`[M, L]` of one value a token."""
    column: np.ndarray = np.full((len(rows), schema.max_items), padding, dtype)
    for row, tokens in zip(column, rows, strict=True):
        row[: len(tokens)] = values(tokens)
    return column


def _tag_columns(
    texts: Sequence[Text], rows: Sequence[Tokens], schema: Schema, target: Target
) -> Arrays:
    starts = _padded(rows, schema, -1, np.int32, lambda row: row.word_starts)
    tags = np.full_like(starts, UNKNOWN_LABEL)
    for text, row, tagged in zip(texts, starts, tags, strict=True):
        if text.words is None or text.tags is None:
            row[:] = -1  # The text has no tags to predict.
        else:
            first = np.flatnonzero(row >= 0)
            tagged[first] = target.encode_labels(list(text.tags))[row[first]]
    return {"tags": tags, "word_starts": starts}


def _targets(texts: Sequence[Text], rows: Sequence[Tokens], target: Target) -> Arrays:
    labels = [_label(text, target) for text in texts]
    if target.kind == LABEL:
        return {LABEL: target.encode_labels(labels)}
    if target.kind == LABELS:
        known = target.encode_label_lists(labels)
        return {LABELS: known, "unknown_labels": target.unknown_labels(labels)}
    if target.kind == NUMBER:
        numbers = [np.nan if label is None else label for label in labels]
        return {NUMBER: np.array(numbers, np.float32)}
    if target.kind == ANSWER:
        spans = [answer_span(text, tokens) for text, tokens in zip(texts, rows, strict=True)]
        start, end = np.array(spans, np.int32).reshape(-1, 2).T
        return {"start": start.copy(), "end": end.copy()}
    return {}


def _label(text: Text, target: Target) -> Any:
    """A text's label, which must be of the target's kind where the target is a label."""
    forms = {LABEL: str, LABELS: list, NUMBER: int | float}
    if text.label is not None and not isinstance(text.label, forms.get(target.kind, object)):
        raise UserError(
            f"a record's label is {shown(text.label)} where the schema's target is of the kind "
            f"{target.kind!r}; take data that were prepared with labels of that kind"
        )
    return text.label


def answer_span(text: Text, tokens: Tokens) -> tuple[int, int]:
    """The first and the last token of the answer, (0, 0) for none, `CUT_OFF` if it was cut."""
    if text.answer is None:
        return 0, 0
    start = text.answer["start"]
    end = start + len(text.answer["text"])
    searched = in_passage(tokens.segments, tokens.words >= 0)
    inside = searched & (tokens.spans[:, 1] > start) & (tokens.spans[:, 0] < end)
    if tokens.cut and (not inside.any() or tokens.spans[searched, 1].max() < end):
        return CUT_OFF, CUT_OFF
    if not inside.any():
        return 0, 0
    first, last = np.flatnonzero(inside)[[0, -1]]
    return int(first), int(last)


def is_whole_words(tokens: Tokens, first: int, last: int) -> bool:
    """Whether a span of tokens of a text begins and ends with a word."""
    words = tokens.words
    return bool(words[first - 1] != words[first] and words[last] != words[last + 1])


def target_values(text: Text, target: Target) -> list[str] | None:
    """The strings that a text's target holds, None where it has no target.

    Raises:
      UserError: its label is not of the target's kind.
    """
    if target.kind == TAGS:
        return text.tags
    if target.kind == ANSWER:
        return None if text.answer is None else []
    label = _label(text, target)
    if label is None or target.kind == NUMBER:
        return None if label is None else []
    return [label] if target.kind == LABEL else label
