"""Queries to a predictor of texts and its results, as plain values.

A result is the class of the run's task, and its field `task` names it. Characters count from 0,
and a span ends before the character `end`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cbert.inference.queries import BaseQuery, Jsonable


@dataclasses.dataclass(frozen=True)
class TextQuery(BaseQuery):
    """A text, given a context; the fields are those of a record.

    Attributes:
      text: The text. A masked language model predicts each `[MASK]` that is written in it; to
        other tasks `[MASK]` is text. It may be left out where `words` are given.
      context: Feature name to value, as in a record; a feature is missing where it is
        absent, None or NaN.
      text_b: The second text of a pair.
      words: The words to tag, where the text is split already. Other tasks read the text, or
        where it was left out the words joined by spaces.
      k: How many tokens, labels or spans to list; fewer are listed where there are fewer.
    """

    needed = ("text", "words")

    text: str | None = None
    context: Mapping[str, Any] | None = None
    text_b: str | None = None
    words: Sequence[str] | None = None
    k: int = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Result(Jsonable):
    """What every result says.

    Attributes:
      unknown_context: Feature name to its values that were never seen in training.
      missing_context: Features that the context does not give.
      cut: Whether the text was cut, because it has more tokens than the schema's `max_items`
        and is not read in windows.
    """

    unknown_context: dict[str, list[str]]
    missing_context: list[str]
    cut: bool


@dataclasses.dataclass(frozen=True)
class TokenProbability:
    """A token of the vocabulary; one that continues a word begins with `##`."""

    token: str
    probability: float


@dataclasses.dataclass(frozen=True)
class LabelProbability:
    """A label of the schema's target."""

    label: str
    probability: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLanguagePrediction(_Result):
    """The tokens that may stand at each `[MASK]`.

    Attributes:
      masks: For each `[MASK]` in the order of the text, then of `text_b`, the k most probable
        tokens, the most probable first. Probabilities are among all tokens.
      follows: The probability that `text_b` follows the text; None where there is no `text_b`
        or the model was not trained to say it.
    """

    masks: list[list[TokenProbability]]
    follows: float | None
    task: Literal["masked_language"] = "masked_language"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationPrediction(_Result):
    """The k most probable labels, the most probable first."""

    labels: list[LabelProbability]
    task: Literal["classification"] = "classification"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiLabelPrediction(_Result):
    """Labels that may hold together, so that their probabilities do not sum to 1.

    Attributes:
      labels: The k most probable ones, the most probable first.
      above_half: All labels whose probability is above 1/2, the most probable first.
    """

    labels: list[LabelProbability]
    above_half: list[str]
    task: Literal["multi_label"] = "multi_label"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionPrediction(_Result):
    """The number, in the units of the records."""

    number: float
    task: Literal["regression"] = "regression"


@dataclasses.dataclass(frozen=True)
class TaggedWord:
    """A word and its most probable tag.

    Attributes:
      word: The word.
      start, end: Its characters in the text, or in the words joined by spaces.
      tag: The tag; None where the word has no token, because it was cut off or holds nothing
        but control characters.
      probability: The tag's; None where there is no tag.
    """

    word: str
    start: int
    end: int
    tag: str | None
    probability: float | None


@dataclasses.dataclass(frozen=True)
class TaggedSpan:
    """Words that belong together by their tags, by the rules that evaluation has.

    Attributes:
      type: The tags' type, such as `time` for `B-time` and `I-time`.
      text: Its characters.
      start, end: Where they stand, as in `TaggedWord`.
      first_word, last_word: The indices of its words.
    """

    type: str
    text: str
    start: int
    end: int
    first_word: int
    last_word: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingPrediction(_Result):
    """The tag of each word, in order, and the spans that the tags mark."""

    words: list[TaggedWord]
    spans: list[TaggedSpan]
    task: Literal["tagging"] = "tagging"


@dataclasses.dataclass(frozen=True)
class Answer:
    """A span of `text_b`, or of `text` where there is no `text_b`."""

    text: str
    start: int
    end: int
    probability: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanPrediction(_Result):
    """The most probable spans.

    A span's probability is that of its first token times that of its last one. Over several
    windows of a long passage it is `no_answer` times the span's odds against no answer in its
    own window, which in the window where no answer is least probable is the same.

    Attributes:
      answer: The first of the spans; None where none is more probable than that there is none.
      no_answer: The probability that there is none; of several windows the least.
      spans: The k most probable different spans, the most probable first.
    """

    answer: Answer | None
    no_answer: float
    spans: list[Answer]
    task: Literal["span"] = "span"


TextPrediction = (
    MaskedLanguagePrediction
    | ClassificationPrediction
    | MultiLabelPrediction
    | RegressionPrediction
    | TaggingPrediction
    | SpanPrediction
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExplanation(_Result):
    """The change that each feature of the context makes in the first prediction.

    That is the most probable token of the first `[MASK]` (of a pair without one, that the
    second text follows), the most probable label, the number, the first tag that is not `O`,
    or the answer, if only that there is none.

    Attributes:
      prediction: The token, `is_next`, the label, the tag, the answer's text (None for none),
        or the number.
      word: The index of the tagged word; None in other tasks.
      probability: The prediction's with the context as given; None of a number.
      log_odds: Its log(p / (1 - p)), in nats; None of a number.
      features: Feature name to the log-odds with the context as given minus the log-odds with
        this feature missing, or the same difference of the number; 0 for a feature that is
        missing anyway.
      outside_training, uses_context: As in `queries.Explanation`.
    """

    prediction: str | float | None
    word: int | None
    probability: float | None
    log_odds: float | None
    features: dict[str, float]
    outside_training: bool
    uses_context: bool
