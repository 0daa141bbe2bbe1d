"""Texts as WordPiece tokens, and where in the text each token stands.

Legend: L tokens of an example, [CLS] and [SEP] included.
"""

import dataclasses
import itertools
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from cbert.schema import Schema, TokenizerOptions
from cbert.schema.tokenizer import CLS, MASK, SEP, UNKNOWN

LONGEST_WORD = 100  # Characters; BERT takes a longer word as unknown.
_BLOCK = 2**20  # Characters that are cut into pieces at once.

# A text, or the words of a sentence.
Segment = str | list[str]


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of one example.

    Attributes:
      codes: `int32 [L]`, rows of the vocabulary.
      segments: `int8 [L]`, 1 in the second text (its [SEP] included) and 0 elsewhere.
      words: `int32 [L]`, the index of the token's word in its segment; -1 for [CLS] and [SEP].
        The words are those that were given, or what stands between white space and
        punctuation.
      spans: `int32 [L, 2]`, the token's first character and the one after its last, in its
        segment, or in its word where words were given; zeros for [CLS] and [SEP]. Accents
        that follow a token's character in a segment and are stripped are the token's, too.
      cut: How many tokens did not fit.
    """

    codes: np.ndarray
    segments: np.ndarray
    words: np.ndarray
    spans: np.ndarray
    cut: int

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def word_starts(self) -> np.ndarray:
        """`int32 [L]`, the word's index at its first piece and -1 elsewhere."""
        first = np.ones(len(self), bool)
        first[1:] = self.words[1:] != self.words[:-1]
        return np.where(first, self.words, -1).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of one segment, without special tokens; the fields are those of `Tokens`."""

    codes: np.ndarray
    words: np.ndarray
    spans: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)


class Tokenizer:
    """BERT's tokeniser: texts as [CLS] text [SEP] or [CLS] text [SEP] text_b [SEP].

    Special tokens that are written in a text are text, unless `masks` is set.

    Attributes:
      unknown, cls, sep, mask: The codes of the special tokens.
      max_length: The most tokens of an example.
    """

    def __init__(self, schema: Schema, masks: bool = False) -> None:
        """Builds the tokeniser of a schema of kind `text`.

        Args:
          schema: Has been checked.
          masks: Whether `[MASK]` in a text stands for the token, as a query writes it.
        """
        assert schema.tokenizer is not None
        self._inner = build(schema.items, schema.tokenizer)
        self._strips_accents = schema.tokenizer.strip_accents
        if masks:
            self._inner.add_special_tokens([MASK])
        codes = schema.codes
        self.unknown, self.mask = codes[UNKNOWN], codes[MASK]
        self.cls, self.sep = codes[CLS], codes[SEP]
        self.max_length = schema.max_items

    def encode(self, first: Segment, second: str | None = None) -> Tokens:
        """The tokens of one example."""
        (tokens,) = self.encode_all([(first, second)])
        return tokens

    def encode_all(self, examples: Sequence[tuple[Segment, str | None]]) -> list[Tokens]:
        """The tokens of some examples, each a segment and another one or None.

        What is longer than `max_length` is cut at the end; of two segments the longer one is
        cut first.
        """
        segments = [part for example in examples for part in example if part is not None]
        pieces = self.pieces(segments)
        return [
            self._joined(next(pieces), None if second is None else next(pieces))
            for _, second in examples
        ]

    def pieces(self, segments: Sequence[Segment]) -> Iterator[Pieces]:
        """The pieces of each segment, neither cut nor with special tokens."""
        for block in _blocks(segments):
            for words, texts in itertools.groupby(block, lambda part: isinstance(part, list)):
                parts = list(texts)
                encodings = self._inner.encode_batch(
                    parts, is_pretokenized=words, add_special_tokens=False
                )
                for part, encoding in zip(parts, encodings, strict=True):
                    spans = np.array(encoding.offsets, np.int32).reshape(-1, 2)
                    if self._strips_accents and isinstance(part, str) and not part.isascii():
                        spans[:, 1] = _after_accents(part)[spans[:, 1]]
                    yield Pieces(
                        np.array(encoding.ids, np.int32),
                        np.array(encoding.word_ids, np.int32),
                        spans,
                    )

    def _joined(self, first: Pieces, second: Pieces | None) -> Tokens:
        """The segments between special tokens, cut to `max_length`."""
        parts = [first] if second is None else [first, second]
        sizes = cut_sizes([len(part) for part in parts], self.max_length - 1 - len(parts))
        length = 1 + sum(sizes) + len(parts)
        codes = np.full(length, self.sep, np.int32)
        codes[0] = self.cls
        segments = np.zeros(length, np.int8)
        words = np.full(length, -1, np.int32)
        spans = np.zeros((length, 2), np.int32)
        start = 1
        for index, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            inside = slice(start, start + size)
            codes[inside] = part.codes[:size]
            words[inside] = part.words[:size]
            spans[inside] = part.spans[:size]
            segments[start : start + size + 1] = index
            start += size + 1
        return Tokens(codes, segments, words, spans, sum(map(len, parts)) - sum(sizes))


def build(vocabulary: Sequence[str], options: TokenizerOptions) -> tokenizers.Tokenizer:
    """The library's tokeniser, which adds no special tokens."""
    codes = {token: code for code, token in enumerate(vocabulary)}
    inner = tokenizers.Tokenizer(
        models.WordPiece(codes, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD)
    )
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=options.split_chinese_characters,
        strip_accents=options.strip_accents,
        lowercase=options.lowercase,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return inner


def cut_sizes(sizes: list[int], room: int) -> list[int]:
    """How much of each of one or two segments is kept, the longer one being cut first."""
    if sum(sizes) <= room:
        return sizes
    if len(sizes) == 1:
        return [room]
    shorter = min(*sizes, room // 2)
    return [room - shorter, shorter] if sizes[0] > sizes[1] else [shorter, room - shorter]


def _after_accents(text: str) -> np.ndarray:
    """For each character, and the end, the first one from there on that is no accent.

    An accent is a character of its own, as in decomposed Unicode, that the normaliser strips.
    """
    positions = np.arange(len(text) + 1, dtype=np.int32)
    accents = [unicodedata.category(one) == "Mn" for one in text]
    positions[:-1][accents] = len(text)
    return np.minimum.accumulate(positions[::-1])[::-1]


def _blocks(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Segments in order, as many at once as memory should hold the pieces of."""
    block: list[Segment] = []
    size = 0
    for segment in segments:
        block.append(segment)
        size += len(segment) if isinstance(segment, str) else sum(map(len, segment))
        if size > _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block
