"""What a task makes of a model's outputs: results with names, and what an explanation compares.

Each reader has `results`, of queries and their outputs, and `first`, the first prediction for a
context as given, compared with the same text's outputs for other contexts. There is an output
for each window of a query; only spans have several.

Legend: R outputs of one text, T labels.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from cbert.inference.text_checks import EncodedText
from cbert.inference.text_program import Outputs
from cbert.inference.text_queries import (
    ClassificationPrediction,
    LabelProbability,
    MultiLabelPrediction,
    RegressionPrediction,
    TextPrediction,
)
from cbert.schema import Schema

Queries = Sequence[EncodedText]


@dataclasses.dataclass(frozen=True)
class First:
    """A text's first prediction.

    Attributes:
      prediction: The token, label, tag, answer or number of the first outputs.
      values: Its log-odds (nats) in each context, `[R]`, or the numbers themselves.
      is_number: Whether they are numbers.
      word: The index of the tagged word.
    """

    prediction: str | float | None
    values: np.ndarray
    is_number: bool = False
    word: int | None = None


class Reader(Protocol):
    """One task's part of a predictor."""

    def results(self, queries: Queries, outputs: Sequence[Outputs]) -> list[TextPrediction]:
        """The result of each query, whose windows' outputs follow each other."""
        ...

    def first(self, query: EncodedText, outputs: Sequence[Outputs]) -> First:
        """What the outputs for the first context predict, and its log-odds in all contexts."""
        ...


class LabelReader:
    """Classification: one label of several."""

    def __init__(self, schema: Schema) -> None:
        self._labels = schema.known_target.values

    def results(self, queries: Queries, outputs: Sequence[Outputs]) -> list[TextPrediction]:
        return [
            ClassificationPrediction(
                labels=self._best(softmax(output["logits"]), query.k), **common(query)
            )
            for query, output in zip(queries, outputs, strict=True)
        ]

    def _best(self, probabilities: np.ndarray, k: int) -> list[LabelProbability]:
        order = np.argsort(-probabilities, kind="stable")[:k]
        return [LabelProbability(self._labels[n], float(probabilities[n])) for n in order]

    def first(self, query: EncodedText, outputs: Sequence[Outputs]) -> First:
        logits = np.stack([output["logits"] for output in outputs])
        label = int(logits[0].argmax())
        return First(self._labels[label], log_odds(logits, label))


class MultiLabelReader(LabelReader):
    """Multi-label classification: each label holds or does not."""

    def results(self, queries: Queries, outputs: Sequence[Outputs]) -> list[TextPrediction]:
        results: list[TextPrediction] = []
        for query, output in zip(queries, outputs, strict=True):
            ranked = self._best(sigmoid(output["logits"]), len(self._labels))
            above = [one.label for one in ranked if one.probability > 0.5]
            results.append(
                MultiLabelPrediction(
                    labels=ranked[: query.k], above_half=above, **common(query)
                )
            )
        return results

    def first(self, query: EncodedText, outputs: Sequence[Outputs]) -> First:
        label = int(outputs[0]["logits"].argmax())
        values = np.array([output["logits"][label] for output in outputs])
        return First(self._labels[label], values)


class NumberReader:
    """Regression; the program has put the target's mean and scale into the number."""

    def results(self, queries: Queries, outputs: Sequence[Outputs]) -> list[TextPrediction]:
        return [
            RegressionPrediction(number=float(output["number"]), **common(query))
            for query, output in zip(queries, outputs, strict=True)
        ]

    def first(self, query: EncodedText, outputs: Sequence[Outputs]) -> First:
        numbers = np.array([output["number"] for output in outputs])
        return First(float(numbers[0]), numbers, is_number=True)


def common(query: EncodedText) -> dict[str, Any]:
    """The fields that every result has."""
    return {
        "unknown_context": query.context.unknown,
        "missing_context": query.context.missing,
        "cut": query.cut,
    }


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis, float64."""
    logits = logits.astype(np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis, float64."""
    return np.exp(log_softmax(logits))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-logits)) without overflow, float64."""
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def log_odds(logits: np.ndarray, label: int) -> np.ndarray:
    """log(p / (1 - p)) of one label, `[R]`, from logits `[R, T]`."""
    logits = logits.astype(np.float64)
    others = np.delete(logits, label, axis=1)
    return logits[:, label] - np.logaddexp.reduce(others, axis=1)
