"""Several labels, numbers and answers: by hand, and learnt where the context decides them."""

import jax.numpy as jnp
import numpy as np
import pytest

from cbert.tasks.multi_label import MultiLabel
from cbert.tasks.regression import Regression
from cbert.tasks.span import best_span, token_f1
from cbert.tasks.text_task import ExampleQueries
from tests.test_text_tasks import LEARNS, evaluated
from tests.text_data import prepare_texts, small_text


def queries(**targets):
    count = len(next(iter(targets.values())))
    return ExampleQueries(np.arange(count), targets, np.ones(count), 0)


def test_f1_of_several_labels_by_hand():
    task = MultiLabel(None, None)
    true = queries(labels=np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0.0]], np.float32))
    predictions = {
        "probability": np.array([[0.9, 0.6, 0.1], [0.7, 0.4, 0.2], [0.1, 0.2, 0.3]]),
        "log_probability": np.zeros(3),
    }
    # Two hits, one false alarm, one miss; the third label neither occurs nor is predicted.
    measured = task.corpus_metrics(predictions, true)(np.ones(3))
    assert measured["micro_f1"] == pytest.approx(4 / 6)
    assert measured["macro_f1"] == pytest.approx((1 + 0) / 2)
    assert task.metric_values(predictions, true)["exact_match"].tolist() == [0, 0, 1]


def test_regression_by_hand():
    task = Regression(None, None)
    true = queries(number=np.array([1.0, 2.0, 4.0], np.float32))
    predictions = {"prediction": np.array([1.0, 4.0, 3.0], np.float32)}
    values = task.metric_values(predictions, true)
    assert values["squared_error"].tolist() == [0, 4, 1]
    assert values["absolute_error"].tolist() == [0, 2, 1]
    measured = task.corpus_metrics(predictions, true)
    expected = np.corrcoef([1, 2, 4], [1, 4, 3])[0, 1]
    assert measured(np.ones(3))["pearson"] == pytest.approx(expected)
    repeated = np.corrcoef([1, 2, 2, 4], [1, 4, 4, 3])[0, 1]
    assert measured(np.array([1.0, 2.0, 1.0]))["pearson"] == pytest.approx(repeated)


def test_the_best_span_is_that_of_all_pairs():
    random = np.random.default_rng(0)
    first, last = random.normal(size=(2, 40, 9)).astype(np.float32)
    passage = random.random((40, 9)) < 0.7
    passage[:, 4] = True
    start, end, score = (
        np.asarray(part)
        for part in best_span(*map(jnp.asarray, (first, last, passage)), longest=3)
    )
    for row in range(40):
        pairs = {
            (a, b): first[row, a] + last[row, b]
            for a in np.nonzero(passage[row])[0]
            for b in np.nonzero(passage[row])[0]
            if 0 <= b - a < 3
        }
        best = max(pairs, key=pairs.get)
        assert (start[row], end[row]) == best
        assert score[row] == pytest.approx(pairs[best], rel=1e-5)


def test_token_f1_by_hand():
    cases = [
        ((0, 0), (0, 0), 1),  # No answer, rightly.
        ((0, 0), (3, 5), 0),
        ((3, 5), (3, 5), 1),
        ((3, 5), (5, 6), 2 / 5),
        ((3, 3), (5, 6), 0),
    ]
    one, other = (np.array([case[side] for case in cases]).T for side in (0, 1))
    assert token_f1(*one, *other).tolist() == pytest.approx([case[2] for case in cases])


@pytest.mark.parametrize(
    ("task", "target", "metric", "least"),
    [
        ("multi_label", "labels", "exact_match", 0.95),
        pytest.param("regression", "number", "pearson", 0.95, marks=pytest.mark.soak),
        pytest.param("span", "answer", "exact_match", 0.95, marks=pytest.mark.soak),
    ],
)
def test_a_context_is_learnt(task, target, metric, least, tmp_path):
    prepare_texts(tmp_path / "data", target)
    config = small_text(task, tmp_path / "data", target, **LEARNS)
    _, summary = evaluated(tmp_path / "run", config, by="mood")
    assert summary["results"]["model"][metric]["mean"] > least
    assert set(summary["by_mood"]) == {"warm", "cold"}
