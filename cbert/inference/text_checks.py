"""Checks and tokenises texts; every refusal is one line that names the value and the fix.

Legend: L tokens of a text, P positions that a task reads.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from cbert.data.text import Segment, Tokenizer, Tokens
from cbert.data.text_records import LONGEST_TEXT, is_visible
from cbert.data.windows import divide
from cbert.errors import UserError, shown
from cbert.inference import context as context_lib
from cbert.inference.checks import check_number
from cbert.inference.context import CheckedContext
from cbert.inference.queries import as_query
from cbert.inference.text_queries import TextQuery
from cbert.schema import Schema
from cbert.schema.target import ALL_PAIRS, NO_PAIRS, WHITE_SPACE
from cbert.schema.tokenizer import MASK
from cbert.schema.values import check_text

MASKED_LANGUAGE, TAGGING, SPAN = "masked_language", "tagging", "span"


@dataclasses.dataclass(frozen=True)
class Window:
    """What the model reads at once: a text or a pair, or a part of a passage with its question.

    Attributes:
      tokens: Its tokens.
      positions: `int [P]`, those that the task reads.
      start: The passage's character that is the window's first one.
    """

    tokens: Tokens
    positions: np.ndarray
    start: int = 0


@dataclasses.dataclass(frozen=True)
class EncodedText:
    """A query that has passed its checks, ready for the model.

    Attributes:
      text, text_b: The texts; the words joined by spaces where words were given.
      words: The words to tag, each with its first character and the one after its last; empty
        in other tasks.
      tokens: The tokens of the text or the pair, cut where it is too long.
      positions: `int [P]`, those that the task reads: each `[MASK]`, the first token of each
        word that was not cut off, or in other tasks every token.
      windows: What a prediction is made of: a window of all `tokens`, or several of a passage
        that is too long, where the schema's target has a stride.
      context: The checked context.
      k: How many tokens, labels or spans to list.
    """

    text: str
    text_b: str | None
    words: list[tuple[str, int, int]]
    tokens: Tokens
    positions: np.ndarray
    windows: list[Window]
    context: CheckedContext
    k: int

    @property
    def cut(self) -> bool:
        """Whether tokens of the text are in no window."""
        return any(window.tokens.cut for window in self.windows)


class TextChecker:
    """Checks queries against a schema and a task.

    Args:
      schema: The model's schema.
      task: The name of the task.
      next_sentence: Whether the model says if a second text follows the first.
    """

    def __init__(self, schema: Schema, task: str, next_sentence: bool = False) -> None:
        self._schema, self._task, self._next_sentence = schema, task, next_sentence
        self._tokenizer = Tokenizer(schema, masks=task == MASKED_LANGUAGE)

    def query(
        self, query: TextQuery | Mapping[str, Any], predicted: bool = True
    ) -> EncodedText:
        """Checks and tokenises a query; raises `UserError`.

        Args:
          query: The query.
          predicted: Whether there must be something to predict, such as a `[MASK]`.
        """
        query = as_query(query, TextQuery)
        check_number("k", query.k, 1)  # Where there are fewer than k, all are listed.
        text, text_b, words = self._texts(query)
        if predicted:
            self._check_pair(text_b)
        context = context_lib.check(self._schema, query.context)
        tagged = self._task == TAGGING
        located: list[tuple[str, int, int]] = []
        segment: Segment = text
        if tagged and (words is not None or self._ends_at_white_space()):
            located = _located(text) if words is None else _joined(words)
            segment = [word for word, _, _ in located]
        tokens = self._tokenizer.encode(segment, text_b)
        positions = np.arange(len(tokens))
        if self._task == MASKED_LANGUAGE:
            positions = np.flatnonzero(tokens.codes == self._tokenizer.mask)
            follows = self._next_sentence and text_b is not None
            needed = predicted and not follows
            self._check_masks(f"{text} {text_b or ''}", len(positions), needed)
        elif tagged:
            positions = np.flatnonzero(tokens.word_starts >= 0)
            located = located or self._split(text, tokens)
        windows = [Window(tokens, positions)]
        if predicted and tokens.cut and self._stride:
            windows = self._windows(text, text_b)
        k = int(query.k)
        return EncodedText(text, text_b, located, tokens, positions, windows, context, k)

    @property
    def _stride(self) -> int:
        """Tokens between windows; 0 where texts are cut."""
        target = self._schema.target
        return target.stride if target is not None and self._task == SPAN else 0

    def _windows(self, text: str, text_b: str | None) -> list[Window]:
        """The windows of a passage, the same as `prepare` makes of it."""
        passage = text if text_b is None else text_b
        divided = divide(text, text_b, self._tokenizer, self._stride)
        parts = [passage[start:end] for start, end in divided]
        encoded = self._tokenizer.encode_all(
            [(part, None) if text_b is None else (text, part) for part in parts]
        )
        return [
            Window(tokens, np.arange(len(tokens)), start)
            for tokens, (start, _) in zip(encoded, divided, strict=True)
        ]

    def _ends_at_white_space(self) -> bool:
        target = self._schema.target
        return target is not None and target.word_ends == WHITE_SPACE

    def _texts(self, query: TextQuery) -> tuple[str, str | None, list[str] | None]:
        """The text, the second one, and the words where they were given."""
        words = None if query.words is None else _words(query.words)
        if words is not None and query.text_b is not None:
            raise UserError("give words or text_b, not both; words have no second text")
        if query.text_b is not None and self._task == TAGGING:
            raise UserError("the model tags the words of one text; leave text_b out")
        if query.text is None and words is None:
            raise UserError("text is missing; give a string, or words as a list of strings")
        if words is not None and (query.text is None or self._task == TAGGING):
            return " ".join(words), None, words
        text_b = None if query.text_b is None else _visible(query.text_b, "text_b")
        return _visible(query.text, "text"), text_b, None

    def _check_pair(self, text_b: str | None) -> None:
        """Refuses one text where the model was trained on pairs alone, and the reverse."""
        target = self._schema.target
        if self._task == MASKED_LANGUAGE or target is None:
            return
        if target.pairs == ALL_PAIRS and text_b is None:
            raise UserError(
                "the model was trained on pairs of texts; give text_b=TEXT, the second"
            )
        if target.pairs == NO_PAIRS and text_b is not None:
            raise UserError("no text that the model was trained on has a text_b; leave it out")

    def _check_masks(self, text: str, kept: int, needed: bool) -> None:
        written = text.count(MASK)
        if written > kept:
            raise UserError(
                f"the text has {written} {MASK}, and {written - kept} of them stand beyond the "
                f"model's longest text, {self._schema.max_items} tokens; shorten the text"
            )
        if needed and not kept:
            raise UserError(
                f"the text has no {MASK}; write {MASK} for each token that is to be predicted"
            )

    def _split(self, text: str, tokens: Tokens) -> list[tuple[str, int, int]]:
        """The words between white space and punctuation, cut off or not."""
        words, spans = tokens.words, tokens.spans
        if tokens.cut:
            (pieces,) = self._tokenizer.pieces([text])
            words, spans = pieces.words, pieces.spans
        located: dict[int, tuple[int, int]] = {}
        for word, (start, end) in zip(words.tolist(), spans.tolist(), strict=True):
            if word >= 0:
                first, _ = located.get(word, (start, end))
                located[word] = first, end
        return [(text[start:end], start, end) for start, end in located.values()]


def _located(text: str) -> list[tuple[str, int, int]]:
    """The words between white space."""
    return [(found[0], *found.span()) for found in re.finditer(r"\S+", text)]


def _joined(words: list[str]) -> list[tuple[str, int, int]]:
    """Words with their characters when they are joined by spaces."""
    located, start = [], 0
    for word in words:
        located.append((word, start, start + len(word)))
        start += len(word) + 1
    return located


def _words(raw: Any) -> list[str]:
    if not isinstance(raw, list | tuple):
        raise UserError(f"words must be a list of strings, not {shown(raw)}")
    if not raw:
        raise UserError("words is empty; give at least one word")
    words = [_checked(word, "a word") for word in raw]
    if sum(map(len, words)) > LONGEST_TEXT:
        raise UserError(f"words has more than {LONGEST_TEXT:,} characters; give fewer")
    if not any(map(is_visible, words)):
        raise UserError("words has invisible characters only; give one that can be seen")
    return words


def _visible(raw: Any, what: str) -> str:
    text = _checked(raw, what)
    if not is_visible(text):
        raise UserError(f"{what} has invisible characters only; give one that can be seen")
    return text


def _checked(text: Any, what: str) -> str:
    if not isinstance(text, str):
        raise UserError(f"{what} must be a string, not {shown(text)}")
    if not text.strip():
        raise UserError(f"{what} is empty; give at least one character that is no space")
    check_text(text, what, LONGEST_TEXT)
    return text
