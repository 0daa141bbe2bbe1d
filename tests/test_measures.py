"""What is measured of predictions, by hand: of tokens, by weights, and in slices."""

import dataclasses
import types

import numpy as np
import pytest

from cbert.evaluation import diagnosis
from cbert.evaluation.measured import Measured, measure
from cbert.tasks import prediction
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_language import MaskedLanguage, MaskedLanguageConfig
from cbert.tasks.metric import Metric, without_sums
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


def test_a_pair_counts_once_however_many_of_its_tokens_are_asked():
    """The first text, with three tokens, is known to follow; the second, with one, is not."""
    task = MaskedLanguage(None, None, options=MaskedLanguageConfig(next_sentence=True))
    made = {
        "log_probability": np.zeros(4),
        "rank": np.ones(4, int),
        "next_sentence_correct": np.array([True, True, False, False]),
        "next_sentence_known": np.full(4, True),
    }
    queries = dataclasses.replace(all_queries({"items": np.arange(4)}), rows=[0, 0, 0, 1])
    measured = prediction.metrics(task, made, queries)
    assert measured["next_sentence_accuracy"] == pytest.approx(2 / 3 / 2)


def test_where_no_pair_is_known_there_is_no_accuracy_of_pairs():
    """Of the group 1 no pair is known, of the group 0 the only one is right."""
    task = MaskedLanguage(None, None, options=MaskedLanguageConfig(next_sentence=True))
    made = {
        "log_probability": np.zeros(2),
        "rank": np.ones(2, int),
        "next_sentence_correct": np.array([True, False]),
        "next_sentence_known": np.array([True, False]),
    }
    measured = measure(task, made, all_queries({"items": np.arange(2)}))
    groups = np.arange(2)
    assert measured.summarize(groups)["next_sentence_accuracy"]["mean"] == 1
    alone = measured.summarize(groups, groups == 1)
    assert list(alone) == ["cross_entropy", "accuracy", "pseudo_perplexity"]


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


@pytest.mark.parametrize(
    ("name", "sign", "by"),
    [("cross_entropy", 1, "0.1033 of cross-entropy"), ("recall@1", -1, "10.33% of r@1")],
)
def test_a_slice_is_lost_where_the_difference_is_twice_its_error(name, sign, by):
    """In both the model is behind by about 0.1, with errors of about 0.004 and 0.06.

    By weight it is (0.1 + 3 * 0.11 + 0.09 + 0.1) / 6 in the first.
    """
    behind = sign * np.array([0.1, 0.11, 0.09, 0.1, 0.2, 0.0, 0.22, -0.02])
    values = {"model": behind, "popularity": np.zeros(8)}
    results = {"model": {}, "popularity": {}}
    task = MaskedItem(None, None)
    (metric,) = (one for one in task.metrics if one.name == name)
    weights = np.array([1, 3, 1, 1, 1, 1, 1, 1.0])
    evaluation = types.SimpleNamespace(
        task=types.SimpleNamespace(metrics=(metric,), slices=task.slices),
        split=LENGTHS,
        queries=types.SimpleNamespace(rows=np.arange(8), weights=weights),
        groups=np.arange(8),
        measured={
            each: Measured({name: numbers}, without_sums(8), weights)
            for each, numbers in values.items()
        },
    )
    assert diagnosis.better_baselines(evaluation, {"results": results}) == [
        f"popularity is better than the model in the slice visible items 1 (by {by})"
    ]


def test_six_of_the_metrics_in_which_a_baseline_is_better_are_named():
    names = [f"m{n}" for n in range(8)]
    results = {
        each: {name: {"mean": value} for name in names}
        for each, value in (("model", 2.0), ("popularity", 1.0))
    }
    evaluation = types.SimpleNamespace(
        task=types.SimpleNamespace(metrics=[Metric(name, "min", name) for name in names]),
        measured=dict.fromkeys(results, Measured({}, without_sums(0), np.zeros(0))),
    )
    assert diagnosis.better_baselines(evaluation, {"results": results}) == [
        "popularity is better than the model in m0 (1.0000 against 2.0000), m1, m2, m3, m4, "
        "m5, and 2 more"
    ]
