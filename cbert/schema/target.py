"""The target of a supervised task.

Legend: M examples, T values of the target.
"""

import dataclasses
import functools

import numpy as np

from cbert.errors import UserError, shown
from cbert.schema.values import check_counts, check_names, check_scale, check_size

LABEL, LABELS, TAGS, NUMBER, ANSWER = "label", "labels", "tags", "number", "answer"
TARGET_KINDS = (LABEL, LABELS, TAGS, NUMBER, ANSWER)
# The labels of next-sentence prediction: the second text follows the first, or is a random one.
IS_NEXT, NOT_NEXT = "is_next", "not_next"
# How many training examples have a second text, `text_b`.
NO_PAIRS, SOME_PAIRS, ALL_PAIRS = PAIRS = ("none", "some", "all")
# Where the words of training texts end: at white space alone, or at punctuation, too.
WHITE_SPACE, PUNCTUATION = WORD_ENDS = ("white_space", "punctuation")
UNKNOWN_LABEL = -1  # The code of a label or a tag that is missing or not in `values`.


@dataclasses.dataclass(frozen=True)
class Target:
    """The target of a data set.

    Attributes:
      kind: `label` (one string), `labels` (a list of strings), `tags` (a string for each
        word), `number`, or `answer` (a span of the text).
      values: The strings of `label`, `labels` and `tags`, most frequent first; a value's code
        is its index here. Empty for the other kinds.
      counts: How many training examples have each value (for `tags`, how many words).
      mean: The mean of the training examples' numbers; 0 for the other kinds.
      scale: The standard deviation of those numbers; 1 for the other kinds.
      pairs: How many training examples are pairs of texts: `none`, `some` or `all`.
      word_ends: Where the words of `tags` end in the training examples: `white_space` or
        `punctuation`. A text without words is split so before it is tagged.
      whole_words: Whether every `answer` of the training examples begins and ends with a
        word, between white space and punctuation. Predicted answers then do so, too.
      stride: Tokens between the windows that the long passages of `answer` were cut into, and
        are cut into to be predicted; 0 for no windows.
    """

    kind: str
    values: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    pairs: str = SOME_PAIRS
    word_ends: str = PUNCTUATION
    whole_words: bool = False
    stride: int = 0

    @functools.cached_property
    def codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values)}

    @property
    def is_next_sentence(self) -> bool:
        """Whether each example has one of the two labels of next-sentence prediction."""
        return self.kind == LABEL and set(self.values) == {IS_NEXT, NOT_NEXT}

    def check(self) -> None:
        """Raises `UserError` naming the field with which no model can be trained."""
        if self.kind not in TARGET_KINDS:
            raise UserError(
                f"target.kind is {shown(self.kind)}; it must be one of "
                + ", ".join(TARGET_KINDS)
            )
        check_names(self.values, "target.values")
        least = {LABEL: 2, LABELS: 1, TAGS: 2}.get(self.kind, 0)
        if len(self.values) < least or (self.values and not least):
            raise UserError(
                f"target.values has {len(self.values)} value(s); the kind {self.kind!r} needs "
                + (f"at least {least}" if least else "none")
            )
        check_counts(self.counts, len(self.values), "target.counts")
        check_scale("target.", self.mean, self.scale)
        if self.pairs not in PAIRS:
            raise UserError(
                f"target.pairs is {shown(self.pairs)}; it must be one of {', '.join(PAIRS)}"
            )
        if self.word_ends not in WORD_ENDS:
            raise UserError(
                f"target.word_ends is {shown(self.word_ends)}; it must be one of "
                + ", ".join(WORD_ENDS)
            )
        check_size("target.stride", self.stride, least=0)
        if self.stride and self.kind != ANSWER:
            raise UserError(
                f"target.stride is {self.stride}, but only answers have windows, and "
                f"target.kind is {self.kind!r}; set target.stride to 0"
            )

    def encode_labels(self, column: list[str | None]) -> np.ndarray:
        """The codes of labels, `int32 [M]`, `UNKNOWN_LABEL` where missing or not known."""
        get = self.codes.get
        codes = [UNKNOWN_LABEL if v is None else get(v, UNKNOWN_LABEL) for v in column]
        return np.array(codes, np.int32)

    def encode_label_lists(self, column: list[list[str] | None]) -> np.ndarray:
        """The values in the lists, `float32 [M, T]` of 0 and 1; -1 where a list is missing."""
        rows = np.zeros((len(column), len(self.values)), np.float32)
        for row, labels in zip(rows, column, strict=True):
            if labels is None:
                row[:] = UNKNOWN_LABEL
            else:
                row[[self.codes[label] for label in labels if label in self.codes]] = 1
        return rows

    def unknown_labels(self, column: list[list[str] | None]) -> np.ndarray:
        """How many labels of each list are not in `values`, `int32 [M]`."""
        unknown = [sum(label not in self.codes for label in labels or ()) for labels in column]
        return np.array(unknown, np.int32)
