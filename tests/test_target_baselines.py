"""Baselines of tags, spans, numbers and several labels, by hand and where a context decides."""

import dataclasses

import numpy as np
import pytest

from cbert.data.columns import Split
from cbert.evaluation import task_baselines
from cbert.evaluation.given_context import indicator
from cbert.evaluation.target_baselines import FrequentTags, of_numbers
from cbert.schema import SET, Categorical, Schema
from cbert.tasks.classification import Classification
from cbert.tasks.multi_label import MultiLabel
from cbert.tasks.regression import Regression
from cbert.tasks.span import Span
from cbert.tasks.tagging import Tagging
from cbert.tasks.text_task import all_queries
from tests.text_data import load, prepare_texts


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets")
    for target in ("tags", "answer", "number", "labels", "label"):
        prepare_texts(folder, target)
    return folder


def predicted(task_class, directory, target):
    """The baselines' mean metrics on the test split, and their predictions."""
    split, schema = load(directory, target, "test")
    task = task_class(None, schema)
    queries = task.queries(split, "")

    def other(name):
        return load(directory, target, name)[0]

    baselines = task_baselines.predictions(task, other, schema, split, queries)
    weights = queries.weights / queries.weights.sum()
    values = {
        name: {
            metric: float(column @ weights)
            for metric, column in task.metric_values(predictions, queries).items()
        }
        for name, predictions in baselines.items()
    }
    return split, queries, baselines, values


def test_tags_are_known_by_their_word_and_by_what_was_asked_for(directory):
    _, queries, baselines, values = predicted(Tagging, directory, "tags")
    assert list(baselines) == ["frequent tag", "frequent tag given context"]
    # Each text has one number, whose tag is one of two by what was asked for.
    alone, given = values.values()
    texts = len(queries)
    words = queries.weights.sum()
    assert 1 - alone["accuracy"] == pytest.approx(0.5 * texts / words, abs=0.15 * texts / words)
    assert alone["cross_entropy"] == pytest.approx(np.log(2) * texts / words, rel=0.2)
    assert given["accuracy"] > 0.98
    assert 0 < given["cross_entropy"] < 0.3 * alone["cross_entropy"]
    for predictions in baselines.values():
        assert ((predictions["tags"] >= 0) == (queries.targets["word_starts"] >= 0)).all()


def test_the_tag_of_a_word_by_hand(directory):
    train, schema = load(directory, "tags")
    tags = FrequentTags(train, schema)
    seven = tags._codes["7"]
    names = schema.target.values
    assert set(names) == {"O", "B-time", "B-people"}
    counts = tags._table[[seven]].toarray()[0]
    prior = (tags.counts + 0.5) / (tags.counts + 0.5).sum()
    expected = (counts + prior) / (counts.sum() + 1)
    unknown = len(tags._codes)
    known, new = np.exp(tags._log_probabilities(np.array([seven, unknown])))
    np.testing.assert_allclose(known, expected, rtol=1e-5)
    np.testing.assert_allclose(new, prior, rtol=1e-5)
    assert counts[names.index("O")] == 0
    # A context that makes all tags likelier alike makes none of them likelier.
    queries = Tagging(None, schema).queries(train, "")
    plain, same = (
        tags.predict(train, queries, ratios)["log_probability"]
        for ratios in (None, np.full((len(queries), len(names)), 3.0))
    )
    np.testing.assert_allclose(same, plain, rtol=1e-5)
    # Where the tokenizer lowers capital letters they make no other words.
    texts = [text.replace('"please"', '"Please"') for text in train.texts]
    assert texts != list(train.texts)
    assert FrequentTags(dataclasses.replace(train, texts=texts), schema)._codes == tags._codes


def test_the_most_frequent_label_given_the_context(directory):
    """Half of the labels are blue, and the mood is the label of the others."""
    alone, given = predicted(Classification, directory, "label")[3].values()
    assert alone["cross_entropy"] == pytest.approx(1.5 * np.log(2), abs=0.1)
    assert given["cross_entropy"] == pytest.approx(np.log(2), abs=0.1)


def test_no_answer_and_the_first_tokens(directory):
    _, queries, baselines, values = predicted(Span, directory, "answer")
    true = queries.targets["answer"]
    none = np.mean([answer is None for answer in true])
    assert values["no answer"]["exact_match"] == pytest.approx(none)
    assert values["no answer"]["answerable_accuracy"] == pytest.approx(none)
    # An answer is one word, so that the baseline takes the first one.
    assert baselines["first tokens"]["start"].tolist() == [1] * len(queries)
    assert baselines["first tokens"]["end"].tolist() == [1] * len(queries)
    first = [passage.split()[0] for passage in queries.targets["passage"]]
    right = np.mean([one == other for one, other in zip(first, true, strict=True)])
    assert values["first tokens"]["exact_match"] == pytest.approx(right)
    assert 0 < right < 0.5
    assert "cross_entropy" not in values["no answer"]


def test_the_mean_given_the_context(directory):
    split, queries, baselines, values = predicted(Regression, directory, "number")
    train, schema = load(directory, "number")
    np.testing.assert_allclose(
        baselines["mean"]["prediction"], np.mean(train.targets["number"]), rtol=1e-5
    )
    # A warm text has ten more, which is all that the context knows.
    assert values["mean"]["squared_error"] > 20
    assert values["mean given context"]["squared_error"] < 3
    moods = indicator(schema.features, split)(queries.rows)
    given = baselines["mean given context"]["prediction"]
    assert np.unique(moods, axis=0).shape[0] == len(np.unique(given.round(6)))
    task = Regression(None, schema)
    # A model's schema may know the mean of other data.
    other = dataclasses.replace(schema, target=dataclasses.replace(schema.target, mean=99.0))
    same = task_baselines.predictions(
        task, lambda n: load(directory, "number", n)[0], other, split, queries
    )
    for name, predictions in same.items():
        np.testing.assert_allclose(predictions["prediction"], baselines[name]["prediction"])
    # A constant has no correlation, whatever rounding leaves of its deviation.
    measured = task.corpus_metrics(baselines["mean"], queries)(np.ones(len(queries)))
    assert measured["pearson"] == 0.0
    assert -0.1 < measured["r_squared"] <= 0.0  # It is the mean of the training split.


def test_the_mean_given_a_context_by_hand():
    """Of the distances 2, -1 and -1 from the mean the first is that of Monday.

    With a penalty of 10 on its weight w alone, and none on the bias b, 11 w + b = 2 and
    w + 3 b = 0.
    """
    schema = Schema(SET, 3, ("a",), (1,), (Categorical("day", 4, ("mon",)),))
    context = {"day": schema.encode_feature("day", ["mon", None, None])}
    names, items = ["x", "y", "z"], np.zeros((3, 1), np.int32)
    targets = {"number": np.array([3.0, 0.0, 0.0], np.float32)}
    train = Split(names, names, ["{}"] * 3, items, context, None, targets=targets)
    made = of_numbers({"train": train}.get, schema, train, all_queries(targets))
    weight, bias = 6 / 32, -2 / 32
    np.testing.assert_allclose(
        made["mean given context"]["prediction"],
        [1 + weight + bias, 1 + bias, 1 + bias],
        rtol=1e-5,
    )


def test_the_frequency_of_labels(directory):
    _, queries, baselines, _ = predicted(MultiLabel, directory, "labels")
    labels = load(directory, "labels")[0].targets["labels"]
    expected = (labels.sum(axis=0) + 0.5) / (len(labels) + 1)
    np.testing.assert_allclose(baselines["label frequency"]["probability"][3], expected)
    true = queries.targets["labels"][3]
    nats = -np.log(np.where(true > 0, expected, 1 - expected)).sum()
    assert -baselines["label frequency"]["log_probability"][3] == pytest.approx(nats)


@pytest.mark.parametrize(
    ("task_class", "target", "column"),
    [
        (Tagging, "tags", "token_columns"),
        (MultiLabel, "labels", "targets"),
        (Classification, "label", "targets"),
        (Regression, "number", "targets"),
    ],
)
def test_splits_in_which_nothing_is_known(directory, task_class, target, column):
    split, schema = load(directory, target, "test")
    task = task_class(None, schema)
    queries = task.queries(split, "")

    def without(unknown):
        def other(name):
            own = load(directory, target, name)[0]
            columns = getattr(own, column)
            nothing = np.full_like(columns[target], np.nan if target == "number" else -1)
            changed = dataclasses.replace(own, **{column: {**columns, target: nothing}})
            return changed if name == unknown else own

        return task_baselines.predictions(task, other, schema, split, queries)

    assert without("train") == {}
    untuned = without("validation")
    assert untuned
    # It is as if there were no such split.
    absent = task_baselines.predictions(
        task,
        lambda name: None if name == "validation" else load(directory, target, name)[0],
        schema,
        split,
        queries,
    )
    assert untuned.keys() == absent.keys()
    for name, predictions in untuned.items():
        for column, values in predictions.items():
            assert np.isfinite(values).all()
            np.testing.assert_array_equal(values, absent[name][column])
