"""The reader of answers: the best spans over all windows of a passage, or none.

Windows are joined by how much more probable a span is than no answer in its own window (Devlin
et al. 2019, section 4.3), because probabilities of different windows have nothing in common.

Legend: L positions of a window.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from cbert.inference import text_readers
from cbert.inference.text_checks import EncodedText, Window
from cbert.inference.text_program import Outputs
from cbert.inference.text_queries import Answer, SpanPrediction, TextPrediction
from cbert.inference.text_readers import First, Queries, common
from cbert.schema import Schema
from cbert.spans import answer_ends, best_spans, in_passage


@dataclasses.dataclass(frozen=True)
class Scores:
    """Log-probabilities (nats) of the first and the last token, `float64 [L]` each."""

    first: np.ndarray
    last: np.ndarray

    @property
    def none(self) -> float:
        """That there is no answer in the window."""
        return float(self.first[0] + self.last[0])


@dataclasses.dataclass(frozen=True)
class _Span:
    """A span of the window of that number, from its token `first` to its token `last`.

    `log_odds` is its log-probability minus that of no answer in the window.
    """

    window: int
    first: int
    last: int
    log_odds: float


class SpanReader:
    """The most probable spans of a passage, or none."""

    def __init__(self, schema: Schema, longest: int) -> None:
        self._schema, self._longest = schema, longest

    def results(self, queries: Queries, outputs: Sequence[Outputs]) -> list[TextPrediction]:
        rows = iter(outputs)
        return [
            self._result(query, scored(itertools.islice(rows, len(query.windows))))
            for query in queries
        ]

    def _result(self, query: EncodedText, scores: list[Scores]) -> SpanPrediction:
        spans = self.best(query, scores, query.k)
        listed = [_answer(query, span, scores) for span in spans]
        return SpanPrediction(
            answer=listed[0] if spans and spans[0].log_odds > 0 else None,
            no_answer=float(np.exp(_least(scores))),
            spans=listed,
            **common(query),
        )

    def best(self, query: EncodedText, scores: list[Scores], k: int) -> list[_Span]:
        """The k best spans over all windows, the best first.

        A span that several windows hold is that of the window where it is best.
        """
        found: dict[tuple[int, int], _Span] = {}
        for number, (window, own) in enumerate(zip(query.windows, scores, strict=True)):
            for first, last, score in self._of_window(window, own, k):
                span = _Span(number, first, last, score - own.none)
                characters = _characters(window, span)
                if characters not in found or found[characters].log_odds < span.log_odds:
                    found[characters] = span
        return sorted(found.values(), key=lambda span: -span.log_odds)[:k]

    def _of_window(
        self, window: Window, scores: Scores, k: int
    ) -> list[tuple[int, int, float]]:
        tokens = window.tokens
        passage = in_passage(tokens.segments, tokens.words >= 0)
        ends = answer_ends(tokens.codes, passage, self._schema.answer_continuations)
        return best_spans(scores.first, scores.last, ends, self._longest, k)

    def first(self, query: EncodedText, outputs: Sequence[Outputs]) -> First:
        rows, count = iter(outputs), len(query.windows)
        contexts = [scored(itertools.islice(rows, count)) for _ in outputs[::count]]
        best = self.best(query, contexts[0], 1)
        if best and best[0].log_odds > 0:
            text: str | None = _answer(query, best[0], contexts[0]).text
            logs = np.array([_log_probability(best[0], each) for each in contexts])
        else:
            text, logs = None, np.array([_least(each) for each in contexts])
        return First(text, logs - np.log(-np.expm1(np.minimum(logs, -1e-12))))


def scored(outputs: Iterable[Outputs]) -> list[Scores]:
    """The scores of each window of a text."""
    return [Scores(*text_readers.log_softmax(output["logits"].T)) for output in outputs]


def _least(scores: list[Scores]) -> float:
    """The log-probability of no answer in the window where it is least probable."""
    return min(own.none for own in scores)


def _log_probability(span: _Span, scores: list[Scores]) -> float:
    """A span's, so that its odds against the joined no answer are those of its window."""
    own = scores[span.window]
    # What is added is exactly 0 for a single window.
    return float(own.first[span.first] + own.last[span.last] + (_least(scores) - own.none))


def _characters(window: Window, span: _Span) -> tuple[int, int]:
    """The span's first character in the passage, and the one after its last."""
    (start, _), (_, end) = window.tokens.spans[[span.first, span.last]].tolist()
    return window.start + start, window.start + end


def _answer(query: EncodedText, span: _Span, scores: list[Scores]) -> Answer:
    start, end = _characters(query.windows[span.window], span)
    passage = query.text if query.text_b is None else query.text_b
    probability = float(np.exp(_log_probability(span, scores)))
    return Answer(passage[start:end], start, end, probability)
