"""A predictor's scores are those of evaluation, and explanations are differences of them."""

import json

import numpy as np
import pytest

from cbert import parallel, tasks
from cbert.data import prepared
from cbert.schema import (
    MASK_ITEM,
)
from cbert.tasks.masked_queries import query_each
from cbert.tasks.prediction import predict_all
from cbert.training import config as config_lib
from tests.test_predict import CONTEXT, logits, softmax


def test_scores_are_those_of_evaluation(predictor, data_dir):
    split = prepared.load(data_dir, "small", "test", predictor.schema)
    queries = query_each(split)
    model = config_lib.build_model(predictor.config, predictor.schema)
    task = tasks.create(predictor.config, model, predictor.schema)
    predictions = predict_all(
        task,
        parallel.replicate(predictor.program.params),
        parallel.replicate(split.columns),
        split,
        queries,
        64,
    )
    rows, log_probability, rank = queries.rows, *predictions.values()
    for row in range(4):
        items = [predictor.schema.items[code] for code in split.items[row] if code >= 0]
        scores = predictor.score(items, json.loads(split.contexts[row]))
        assert [one.item for one in scores.scores] == items
        mine = rows == row
        np.testing.assert_allclose(
            [one.log_probability for one in scores.scores],
            log_probability.reshape(-1)[mine],
            atol=1e-5,
        )
        assert [one.rank for one in scores.scores] == rank.reshape(-1)[mine].tolist()


def test_an_explanation_is_a_difference_of_log_odds(predictor):
    names = predictor.schema.items

    def log_odds(context):
        p = softmax(logits(predictor, [3, 4, MASK_ITEM], 2, context))[9]
        return np.log(p / (1 - p))

    explanation = predictor.explain([names[3], names[4]], CONTEXT, names[9])
    assert explanation.log_odds == pytest.approx(log_odds(CONTEXT), abs=1e-4)
    assert explanation.probability == pytest.approx(
        1 / (1 + np.exp(-explanation.log_odds)), rel=1e-4
    )
    assert set(explanation.features) == {f.name for f in predictor.schema.features}
    for name, difference in explanation.features.items():
        without = log_odds({**CONTEXT, name: None})
        assert difference == pytest.approx(log_odds(CONTEXT) - without, abs=1e-4)
    assert any(abs(explanation.features[name]) > 1e-3 for name in CONTEXT)
    assert [explanation.features[name] for name in explanation.missing_context] == [0.0]
    assert (explanation.outside_training, explanation.uses_context) == (True, True)
