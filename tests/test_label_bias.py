"""A classifier of several labels begins with the log-odds of each as its bias."""

import dataclasses

import numpy as np

from cbert import experiment, tasks
from cbert.data import columns
from cbert.training import config as config_lib
from cbert.training import loop
from tests import steps
from tests.test_initialize import best_params
from tests.text_data import load, prepare_texts, rows, small_text


def began(config):
    return steps.flat(experiment.build(config).state.params)


def test_the_bias_begins_at_the_log_odds_of_the_training_split(tmp_path):
    prepare_texts(tmp_path, "labels")
    split, schema = load(tmp_path, "labels")
    labels = {row["id"]: row["label"] for row in rows("labels")}
    training = [labels[each] for each in split.ids]
    config = small_text("multi_label", tmp_path, "labels", train__steps=3)
    bias = began(config)["classifier/bias"]
    assert len(bias) == len(schema.target.values) == 4
    for value, own in zip(schema.target.values, bias, strict=True):
        has = sum(value in each for each in training)
        expected = np.log((has + 0.5) / (len(training) - has + 0.5))
        np.testing.assert_allclose(own, expected, rtol=1e-4)

    # Another run's parameters keep the bias that they have.
    loop.train(config, tmp_path / "run")
    config.train.init_from = str(tmp_path / "run")
    again, learned = began(config), best_params(tmp_path / "run")
    np.testing.assert_array_equal(again["classifier/bias"], learned["classifier/bias"])
    assert (again["classifier/bias"] != bias).all()


def test_an_example_counts_as_often_as_its_weight_is_to_their_mean(tmp_path):
    prepare_texts(tmp_path, "labels")
    split, schema = load(tmp_path, "labels")
    config = small_text("multi_label", tmp_path, "labels")
    task = tasks.create(config, config_lib.build_model(config, schema), schema, split)
    weights = {"weight": np.array([4, 0, 2, 2], np.float32)}
    weighted = dataclasses.replace(
        columns.selected(split, [0, 3, 1, 2]), example_columns=weights
    )
    repeated = columns.selected(split, [0, 0, 1, 2])
    bias, expected = (
        task.first_parameters(one)["classifier"]["bias"] for one in (weighted, repeated)
    )
    np.testing.assert_array_equal(bias, expected)
    assert len(set(expected.tolist())) > 1
