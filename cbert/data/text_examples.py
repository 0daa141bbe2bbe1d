"""Examples made out of the records of a text data set: packed, paired, or cut into windows.

Each of them reads the records of one split, those of a group (a document) in order and
following each other, and yields records.

Legend: M records of a split.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from cbert.data import windows as windows_lib
from cbert.data.hashing import uniform
from cbert.data.record_store import RecordView
from cbert.data.records import Record, in_blocks, text_of
from cbert.data.text import Tokenizer
from cbert.errors import UserError, shown
from cbert.schema.target import IS_NEXT, NOT_NEXT


def check_plain(record: Record) -> None:
    """Refuses, with `UserError`, a record whose text cannot be joined to another one."""
    for field in ("text_b", "words", "label", "answer"):
        if getattr(text_of(record), field) is not None:
            raise UserError(
                f"record {shown(record.id)} has {field!r}; pack and pairs take records of one "
                "text each"
            )


def packed(records: Iterable[Record], tokenizer: Tokenizer, room: int) -> Iterator[Record]:
    """Joins consecutive sentences of a document while they have at most `room` tokens.

    Sentences are joined by a space, and only where their context and weight are the same. The
    joined record has the id of its first sentence.
    """
    block: list[Record] = []
    size = 0
    for record, length in _with_lengths(records, tokenizer):
        fits = size + length <= room
        if block and not (fits and _same_document(block[0], record)):
            yield _joined(block)
            block, size = [], 0
        block.append(record)
        size += length
    if block:
        yield _joined(block)


def _with_lengths(
    records: Iterable[Record], tokenizer: Tokenizer
) -> Iterator[tuple[Record, int]]:
    """The records with the number of tokens of their texts."""
    for block in in_blocks(records):
        texts = [text_of(record).text for record in block]
        for record, pieces in zip(block, tokenizer.pieces(texts), strict=True):
            yield record, len(pieces)


def _same_document(one: Record, other: Record) -> bool:
    return (one.group, one.context, one.weight) == (other.group, other.context, other.weight)


def _joined(block: list[Record]) -> Record:
    joined = " ".join(text_of(record).text for record in block)
    return _with_text(block[0], text=joined)


def _with_text(record: Record, **fields: Any) -> Record:
    return dataclasses.replace(record, text=dataclasses.replace(text_of(record), **fields))


def next_sentence_pairs(records: RecordView, groups: np.ndarray) -> Iterator[Record]:
    """Pairs for next-sentence prediction, one for each text but the last of a document.

    A hash of the text's id decides whether it is followed by the next one or by a random one of
    another document of the split, so half of the pairs are of each kind.

    Args:
      records: Texts of one split.
      groups: `uint64 [M]`, a hash of each one's document.

    Raises:
      UserError: there is one document only.
    """
    changes = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    if len(groups) and not len(changes):
        raise UserError(
            "pairs=next needs two documents in each split, to pair a text with one of another; "
            "give more groups"
        )
    for first, last in itertools.pairwise([0, *changes.tolist(), len(groups)]):
        for index in range(first, last - 1):
            record = records[index]
            is_next = uniform(f"next {record.id}") < 0.5
            other = index + 1
            if not is_next:
                other = int(uniform(f"other {record.id}") * (len(groups) - last + first))
                other += (last - first) * (other >= first)
            label = IS_NEXT if is_next else NOT_NEXT
            yield _with_text(record, text_b=text_of(records[other]).text, label=label)


def windows(records: Iterable[Record], tokenizer: Tokenizer, stride: int) -> Iterator[Record]:
    """Cuts the text that holds the answer into windows that fit, each a record of its own.

    A window's id is the record's with `#0`, `#1`, ...; it has the answer where it holds it
    whole. A passage that fits is one window, so that all examples are windows. See
    `windows.divide` and `columns.Split.record_ids`.
    """
    for record in records:
        text = text_of(record)
        passage = text.text if text.text_b is None else text.text_b
        field = "text" if text.text_b is None else "text_b"
        divided = windows_lib.divide(text.text, text.text_b, tokenizer, stride)
        for number, (start, end) in enumerate(divided):
            window = _with_text(
                record,
                answer=_inside(text.answer, start, end),
                window={"start": start, "answer": text.answer and text.answer["text"]},
                **{field: passage[start:end]},
            )
            yield dataclasses.replace(window, id=f"{record.id}#{number}")


def _inside(answer: dict[str, Any] | None, start: int, end: int) -> dict[str, Any] | None:
    """The answer with its start in the window, None where it is not in it whole."""
    if answer is None:
        return None
    if answer["start"] < start or answer["start"] + len(answer["text"]) > end:
        return None
    return {**answer, "start": answer["start"] - start}
