"""The readers of tasks that predict tokens and tags of words; see `text_readers`.

Legend: L tokens of a text, P positions that are read, D model dimension, T tags.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import ml_collections
import numpy as np

from cbert.errors import UserError
from cbert.inference import text_readers
from cbert.inference.span_reader import SpanReader
from cbert.inference.text_checks import MASKED_LANGUAGE, SPAN, EncodedText
from cbert.inference.text_program import Outputs, TextProgram
from cbert.inference.text_queries import (
    MaskedLanguagePrediction,
    TaggedSpan,
    TaggedWord,
    TaggingPrediction,
    TextPrediction,
    TokenProbability,
)
from cbert.inference.text_readers import First, Queries, Reader, common
from cbert.schema import Schema
from cbert.schema.target import IS_NEXT
from cbert.spans import OUTSIDE, spans


class MaskedLanguageReader:
    """The tokens at each `[MASK]`, and whether a second text follows."""

    def __init__(self, schema: Schema, program: TextProgram) -> None:
        self._schema, self._program = schema, program

    def results(self, queries: Queries, outputs: Sequence[Outputs]) -> list[TextPrediction]:
        ranked = self._ranked(queries, outputs)
        return [
            MaskedLanguagePrediction(
                masks=[
                    self._best(*row, query.k)
                    for row in itertools.islice(ranked, len(query.positions))
                ],
                follows=_follows(query, output),
                **common(query),
            )
            for query, output in zip(queries, outputs, strict=True)
        ]

    def _ranked(
        self, queries: Queries, outputs: Sequence[Outputs]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each `[MASK]` of all queries the likeliest tokens and their log-probabilities."""
        vectors = np.concatenate([output["vectors"] for output in outputs])
        if not len(vectors):
            return iter(())
        values, tokens = self._program.rank_tokens(vectors, max(query.k for query in queries))
        return zip(tokens, values, strict=True)

    def _best(self, tokens: np.ndarray, values: np.ndarray, k: int) -> list[TokenProbability]:
        """The first k of a row; other queries may list far more."""
        pairs = zip(tokens[:k].tolist(), np.exp(values[:k]).tolist(), strict=True)
        return [TokenProbability(self._schema.items[code], one) for code, one in pairs]

    def first(self, query: EncodedText, outputs: Sequence[Outputs]) -> First:
        if not len(query.positions):
            logits = np.stack([output["next_sentence"] for output in outputs])
            return First(IS_NEXT, text_readers.log_odds(logits, 0))
        vectors = np.stack([output["vectors"][0] for output in outputs])
        _, tokens = self._program.rank_tokens(vectors[:1], 1)
        repeated = np.repeat(tokens[0], len(vectors))
        values = self._program.token_log_odds(vectors, repeated)
        return First(self._schema.items[repeated[0]], values)


def _follows(query: EncodedText, output: Outputs) -> float | None:
    if query.text_b is None or "next_sentence" not in output:
        return None
    return float(text_readers.softmax(output["next_sentence"])[0])


class TagReader:
    """The tag of each word, and the spans that the tags mark."""

    def __init__(self, schema: Schema) -> None:
        self._tags = schema.known_target.values

    def results(self, queries: Queries, outputs: Sequence[Outputs]) -> list[TextPrediction]:
        return [
            self._result(query, output) for query, output in zip(queries, outputs, strict=True)
        ]

    def _result(self, query: EncodedText, output: Outputs) -> TaggingPrediction:
        tagged = {}
        words = query.tokens.words[query.positions].tolist()
        for word, probabilities in zip(
            words, text_readers.softmax(output["logits"]), strict=True
        ):
            best = int(probabilities.argmax())
            tagged[word] = self._tags[best], float(probabilities[best])
        result = [
            TaggedWord(*word, *tagged.get(index, (None, None)))
            for index, word in enumerate(query.words)
        ]
        return TaggingPrediction(
            words=result, spans=tagged_spans(query.text, result), **common(query)
        )

    def first(self, query: EncodedText, outputs: Sequence[Outputs]) -> First:
        if not len(query.positions):
            return First(None, np.zeros(len(outputs)), is_number=True)
        best = outputs[0]["logits"].argmax(axis=1)
        inside = [row for row, tag in enumerate(best) if self._tags[tag] != OUTSIDE]
        row = inside[0] if inside else 0
        logits = np.stack([output["logits"][row] for output in outputs])
        word = int(query.tokens.words[query.positions[row]])
        tag = int(best[row])
        return First(self._tags[tag], text_readers.log_odds(logits, tag), word=word)


def tagged_spans(text: str, words: list[TaggedWord]) -> list[TaggedSpan]:
    """The spans that the tags of a text's words mark, in order."""
    # As in an evaluation, a word without a token, which has no tag, divides no span.
    tagged = [index for index, word in enumerate(words) if word.tag]
    marked = spans([words[index].tag or OUTSIDE for index in tagged])
    located = [(kind, tagged[first], tagged[last]) for kind, first, last in marked]
    by_position = sorted(located, key=lambda span: span[1])
    return [
        TaggedSpan(
            kind,
            text[words[first].start : words[last].end],
            words[first].start,
            words[last].end,
            first,
            last,
        )
        for kind, first, last in by_position
    ]


def create(config: ml_collections.ConfigDict, schema: Schema, program: TextProgram) -> Reader:
    """The reader of a checked config's task; raises `UserError` where it has none."""
    task = config.task.name
    if task == MASKED_LANGUAGE:
        return MaskedLanguageReader(schema, program)
    if task == SPAN:
        return SpanReader(schema, config.task.span.max_answer)
    if task == "regression":
        return text_readers.NumberReader()
    readers: dict[str, Callable[[Schema], Reader]] = {
        "classification": text_readers.LabelReader,
        "multi_label": text_readers.MultiLabelReader,
        "tagging": TagReader,
    }
    if task not in readers:
        raise UserError(f"the task {task} has no predictor; evaluate its run instead")
    return readers[task](schema)
