"""What is measured of predictions, by hand: of tokens, by weights, and in slices."""

import types

import numpy as np
import pytest

from cbert.evaluation import diagnosis
from cbert.evaluation.measured import Measured
from cbert.tasks import prediction
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_language import MaskedLanguage, MaskedLanguageConfig
from cbert.tasks.metric import no_corpus_metrics
from cbert.tasks.regression import Regression
from cbert.tasks.text_task import all_queries


def test_masked_tokens_and_pairs():
    """Of the pairs of the three tokens one is not known."""
    task = MaskedLanguage(None, None, options=MaskedLanguageConfig(next_sentence=True))
    made = {
        "log_probability": np.log([0.5, 0.25, 1.0]),
        "rank": np.array([1, 2, 1]),
        "next_sentence_correct": np.array([True, True, False]),
        "next_sentence_known": np.array([True, False, True]),
    }
    queries = all_queries({"items": np.arange(3)})
    assert task.metric_values(made, queries)["accuracy"].tolist() == [1, 0, 1]
    assert prediction.metrics(task, made, queries) == pytest.approx(
        {
            "cross_entropy": np.log(8) / 3,
            "accuracy": 2 / 3,
            "pseudo_perplexity": 2,
            "next_sentence_accuracy": 1 / 2,
        }
    )


def test_the_means_of_a_validation_are_by_weight():
    queries = all_queries({"number": np.zeros(2)}, np.array([1.0, 3.0]))
    made = {"prediction": np.array([1.0, 2.0])}
    measured = prediction.metrics(Regression(None, None), made, queries)
    assert measured["absolute_error"] == (1 + 3 * 2) / 4
    assert measured["squared_error"] == (1 + 3 * 4) / 4


LENGTHS = types.SimpleNamespace(lengths=np.repeat([2, 3], 4))


def test_sets_are_sliced_by_what_is_visible():
    """One of the items is masked."""
    slices = MaskedItem(None, None).slices(LENGTHS)["visible_items"]
    rows = {label: np.flatnonzero(inside).tolist() for label, inside in slices.items()}
    assert rows == {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}


def test_a_slice_is_lost_where_the_difference_is_twice_its_error():
    """In both the model is behind by one nat, with errors of about 0.04 and 0.6."""
    behind = np.array([1.0, 1.1, 0.9, 1.0, 2.0, 0.0, 2.2, -0.2])
    values = {"model": behind, "popularity": np.zeros(8)}
    results = {"model": {}, "popularity": {}}
    evaluation = types.SimpleNamespace(
        task=MaskedItem(None, None),
        split=LENGTHS,
        queries=types.SimpleNamespace(rows=np.arange(8), weights=np.ones(8)),
        groups=np.arange(8),
        measured={
            name: Measured({"cross_entropy": nats}, no_corpus_metrics(8), np.ones(8))
            for name, nats in values.items()
        },
    )
    assert diagnosis.better_baselines(evaluation, {"results": results}) == [
        "popularity is better than the model in the slice visible items 1 "
        "(1.0000 of cross-entropy)"
    ]
