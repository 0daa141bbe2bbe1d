"""Counts how the texts of a data set use its vocabulary and its target.

Legend: M examples, V pieces of the vocabulary.
"""

import collections
import dataclasses

import numpy as np

from cbert import progress
from cbert.data import text_columns
from cbert.data.collection import Collection
from cbert.data.records import TRAIN, Record, in_blocks, text_of
from cbert.data.text import Tokenizer, Tokens
from cbert.data.text_records import Text
from cbert.errors import shown
from cbert.schema import Schema, Target
from cbert.schema.target import ANSWER, NUMBER
from cbert.schema.tokenizer import LEAST_LENGTH
from cbert.schema.values import check_near


class TokenUsage:
    """Counts of the texts of a data set under a schema.

    Attributes:
      counts: `int64 [V]`, how often each piece occurs in the training split.
      lengths: `int64 [M]`, the tokens of each example, those that were cut not among them.
      unknown: How many pieces are [UNK].
      unread: How many examples are [UNK] alone.
      cut: How many examples were cut.
      missing: How many examples have no target.
      unknown_targets: How many examples have a label or a tag that training has not.
      unknown_values: In how many examples each label or tag occurs that training has not.
      cut_answers: How many examples have an answer that was cut off with its passage.
      whole_words: Whether every answer of the training split begins and ends with a word.
    """

    def __init__(self, collection: Collection, schema: Schema) -> None:
        """Tokenises every record; raises `UserError` where the schema does not fit."""
        self.counts = np.zeros(len(schema.items), np.int64)
        self.lengths = np.zeros(len(collection), np.int64)
        self.unknown, self.unread, self.cut, self.missing = 0, 0, 0, 0
        self.unknown_targets, self.cut_answers = 0, 0
        self.unknown_values: collections.Counter[str] = collections.Counter()
        self.whole_words = True
        training = np.zeros(len(collection), bool)
        training[collection.overview.indices(TRAIN)] = True
        tokenizer = Tokenizer(schema)
        start = 0
        with progress.bar(desc="tokenising", total=len(collection), unit=" texts") as bar:
            for block in in_blocks(collection.everything()):
                texts = [text_of(record) for record in block]
                if schema.target is not None and schema.target.kind == NUMBER:
                    _check_labels(block, schema.target)
                inside = slice(start, start + len(block))
                self._add(texts, schema, tokenizer, training[inside], inside)
                start += len(block)
                bar.update(len(block))

    def _add(
        self,
        texts: list[Text],
        schema: Schema,
        tokenizer: Tokenizer,
        training: np.ndarray,
        inside: slice,
    ) -> None:
        """Takes note of a block of texts, some of which are of the training split."""
        rows = text_columns.tokenized(texts, schema, tokenizer)
        self.lengths[inside] = [len(row) for row in rows]
        self.cut += sum(row.cut > 0 for row in rows)
        pieces = [row.codes[row.words >= 0] for row in rows]
        codes, sizes = np.concatenate(pieces), [len(row) for row in pieces]
        unknown_pieces = codes == tokenizer.unknown
        self.unknown += int(unknown_pieces.sum())
        self.unread += sum(map(np.all, np.split(unknown_pieces, np.cumsum(sizes)[:-1])))
        counted = codes[np.repeat(training, sizes)]
        self.counts += np.bincount(counted, minlength=len(self.counts))
        if schema.target is not None:
            for text, tokens, trained in zip(texts, rows, training, strict=True):
                values = text_columns.target_values(text, schema.target)
                self.missing += values is None
                unknown = set(values or ()) - schema.target.codes.keys()
                self.unknown_targets += bool(unknown)
                self.unknown_values.update(sorted(unknown))
                if schema.target.kind == ANSWER:
                    self._add_answer(*text_columns.answer_span(text, tokens), tokens, trained)

    def _add_answer(self, start: int, end: int, tokens: Tokens, trained: bool) -> None:
        """Takes note of an answer, `start` and `end` as in `text_columns.answer_span`."""
        self.cut_answers += start == text_columns.CUT_OFF
        if trained and start > 0:
            self.whole_words &= text_columns.is_whole_words(tokens, start, end)

    def counted(self, schema: Schema) -> Schema:
        """The schema with what was counted."""
        counts, target = tuple(self.counts.tolist()), schema.target
        if target is not None and target.kind == ANSWER:
            target = dataclasses.replace(target, whole_words=self.whole_words)
        return dataclasses.replace(schema, counts=counts, target=target)

    def longest(self) -> int:
        """The tokens of the longest example, or the fewest that a model may read."""
        return max(LEAST_LENGTH, int(self.lengths.max()))


def _check_labels(records: list[Record], target: Target) -> None:
    """Refuses a record whose number is too far from training's, naming it."""
    for record in records:
        label = text_of(record).label
        if isinstance(label, int | float):
            check_near(f"record {shown(record.id)}: 'label'", label, target.mean, target.scale)
