"""Metrics of labels, tags and spans, by hand."""

import numpy as np
import pytest

from cbert import spans
from cbert.evaluation import metrics
from cbert.inference import token_readers
from cbert.inference.text_queries import TaggedWord
from cbert.tasks import span_scores
from cbert.tasks.label_metrics import (
    calibration_error,
    macro_f1,
    reliability,
)
from cbert.tasks.metric import CorpusMetrics


def test_macro_f1_by_hand():
    labels = np.array([0, 0, 0, 1, 1, 3])
    predicted = np.array([0, 0, 1, 1, 2, 0])
    # F1: label 0 4/6, label 1 2/4, label 2 0/1 (only predicted), label 3 0/1 (never predicted).
    expected = (4 / 6 + 2 / 4 + 0 + 0) / 4
    measured = macro_f1(labels, predicted)
    assert measured(np.ones(6)) == {"macro_f1": pytest.approx(expected)}
    # Without the last two, labels 2 and 3 neither occur nor are predicted.
    weights = np.array([1, 1, 1, 1, 0, 0.0])
    assert measured(weights)["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    twice = np.array([1, 1, 2, 1, 1, 1.0])
    repeated = np.array([0, 1, 2, 2, 3, 4, 5])
    one, other = measured(twice), macro_f1(labels[repeated], predicted[repeated])(np.ones(7))
    assert one == pytest.approx(other)


def test_calibration_error_by_hand():
    # Fifteen bins: .95 and .99 share the last one, 0.5 is in the eighth, 1/15 ends the first.
    probability = np.array([0.95, 0.99, 0.5, 1 / 15])
    correct = np.array([True, False, True, False])
    expected = (abs(1 - 1.94) + abs(1 - 0.5) + 1 / 15) / 4
    measured = calibration_error(correct, probability)
    assert measured(np.ones(4)) == {"calibration_error": pytest.approx(expected)}
    assert measured(np.array([1.0, 0, 0, 0]))["calibration_error"] == pytest.approx(0.05)
    counts, right, summed = reliability(correct, probability)
    assert counts.tolist() == [1] + [0] * 6 + [1] + [0] * 6 + [2]
    assert (right[[0, 7, 14]].tolist(), summed[14]) == ([0, 1, 1], pytest.approx(1.94))


def test_calibration_error_of_several_labels_by_hand():
    # The pairs of a text and a label: .2 and .2 share the third bin and .7 is in the eleventh.
    holds = np.array([[True, False], [True, True]])
    probability = np.array([[0.2, 0.2], [0.7, 1.0]])
    measured = calibration_error(holds, probability)
    assert measured(np.ones(2))["calibration_error"] == pytest.approx((0.6 + 0.3 + 0) / 4)
    assert measured(np.array([0.0, 3.0]))["calibration_error"] == pytest.approx(0.3 / 2)


@pytest.mark.parametrize(("rate", "least", "most"), [(1.0, 1.2, 1.9), (0.8, 0.85, 1.25)])
def test_the_error_of_a_calibration_error_is_how_much_it_varies(rate, least, most):
    """Predictions are right as often as they say, or four fifths as often, 400 times."""
    random = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(400):
        probability = random.beta(5, 1, 300)
        corpus = calibration_error(random.random(300) < rate * probability, probability)
        every = metrics.summarize_corpus(corpus, np.arange(300), np.ones(300, bool))
        found.append(every["calibration_error"]["mean"])
        errors.append(every["calibration_error"]["standard_error"])
    assert least < np.mean(errors) / np.std(found) < most


def test_the_derivatives_of_a_calibration_error_are_its_changes():
    random = np.random.default_rng(1)
    probability = random.random((40, 3))
    corpus = calibration_error(random.random((40, 3)) < 0.7 * probability, probability)
    weights = random.integers(1, 4, 40).astype(float)
    _, slopes = corpus.ranked(weights)["calibration_error"]
    changes = 1e-6 * np.eye(40)
    ends = [[corpus(weights + sign * one) for one in changes] for sign in (1, -1)]
    more, less = ([one["calibration_error"] for one in end] for end in ends)
    assert slopes == pytest.approx((np.array(more) - less) / 2e-6, abs=1e-8)


def test_they_are_known_where_a_bin_has_right_and_wrong_ones():
    probability = np.array([0.99, 0.98, 0.2, 0.5])

    def known(correct, weights=(1, 1, 1, 1), probability=probability):
        ranked = calibration_error(np.array(correct), probability).ranked(np.array(weights))
        finite = np.isfinite(ranked["calibration_error"][1])
        assert finite.all() == finite.any()
        return finite.all()

    assert not known([True] * 4)
    assert not known([True, True, False, False])
    assert known([True, False, True, True])
    assert not known([True, False, True, True], (1, 0, 1, 1))
    of_labels = np.array([[0.9, 0.1], [0.95, 0.1]])
    assert not known(of_labels > 0.5, (1, 1), of_labels)
    assert known([[True, False], [True, True]], (1, 1), of_labels)


def test_metrics_of_two_kinds_are_measured_together():
    f1 = macro_f1(np.array([0, 1]), np.array([0, 0]))
    error = calibration_error(np.array([True, False]), np.array([0.5, 0.5]))
    for weights in (np.array([1.0, 1.0]), np.array([1.0, 0.0])):
        assert (f1 + error)(weights) == {**f1(weights), **error(weights)}
    spanned = CorpusMetrics(np.array([[1.0, 2, 4], [0, 1, 0]]), span_scores.scores)
    both = f1 + spanned
    together = both.measure(np.eye(2) @ both.statistics)
    for row, one in enumerate(np.eye(2)):
        expected = {**f1(one), **spanned(one)}
        assert {name: values[row] for name, values in together.items()} == expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", set()),
        ("B-x I-x O B-x", {("x", 0, 1), ("x", 3, 3)}),
        ("B-x B-x I-x", {("x", 0, 0), ("x", 1, 2)}),
        ("I-x I-x O I-y", {("x", 0, 1), ("y", 3, 3)}),
        ("B-x I-y I-y O", {("x", 0, 0), ("y", 1, 2)}),
        ("O B-first-name I-first-name", {("first-name", 1, 2)}),
        ("x x y", {("x", 0, 1), ("y", 2, 2)}),
        ("B I O B B", {("_", 0, 1), ("_", 3, 3), ("_", 4, 4)}),
        ("B-x I-x E-x O S-y S-y", {("x", 0, 2), ("y", 4, 4), ("y", 5, 5)}),
        ("B-x L-x I-x U-x O", {("x", 0, 1), ("x", 2, 2), ("x", 3, 3)}),
    ],
)
def test_spans_by_hand(tags, expected):
    assert spans.spans(tags.split()) == expected


def test_span_scores_by_hand():
    truth = [["B-x", "I-x", "O", "B-y"], ["O", "B-x"], ["O", "O"]]
    predicted = [["B-x", "I-x", "O", "B-x"], ["O", "B-x"], ["B-y", "O"]]
    counts = np.array([span_scores.count(*pair) for pair in zip(truth, predicted, strict=True)])
    assert counts.tolist() == [[1, 2, 2], [1, 1, 1], [0, 1, 0]]
    scores = span_scores.scores(np.ones(3) @ counts)
    assert scores == pytest.approx(
        {"span_precision": 2 / 4, "span_recall": 2 / 3, "span_f1": 4 / 7}
    )
    only_last = span_scores.scores(np.array([0, 0, 1.0]) @ counts)
    assert only_last == {"span_precision": 0.0, "span_recall": 0.0, "span_f1": 0.0}


def test_spans_are_those_of_seqeval():
    get_entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    random = np.random.default_rng(0)
    for _ in range(500):
        all_tags = ["O", "B-x", "I-x", "E-x", "S-x", "B-y", "I-y", "E-y", "S-y", "B", "I"]
        tags = random.choice(all_tags, size=8).tolist()
        assert spans.spans(tags) == set(get_entities(tags)), tags


def test_well_formed_bilou_tags_mark_the_spans_of_seqeval():
    scheme = pytest.importorskip("seqeval.scheme")
    tags = ["B-x", "I-x", "L-x", "U-y", "O", "U-y", "B-y", "L-y"]
    (expected,) = scheme.Entities([tags], scheme.BILOU).entities
    assert spans.spans(tags) == {(one.tag, one.start, one.end - 1) for one in expected}


def test_a_word_without_a_token_divides_no_span():
    tags = {"new": "B-city", "\u200b": None, "york": "I-city", "is": "O"}
    words, start = [], 0
    for word, tag in tags.items():
        words.append(TaggedWord(word, start, start + len(word), tag, None))
        start += len(word) + 1
    (span,) = token_readers.tagged_spans(" ".join(tags), words)
    assert (span.text, span.first_word, span.last_word) == ("new \u200b york", 0, 2)


def test_the_error_of_a_corpus_metric_is_that_of_the_mean():
    """For a metric that is a mean, the influences and the formula agree."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), 3)
    values = random.normal(size=200)[groups]
    inside = groups < 150

    statistics = np.stack([values, np.ones(600)], axis=1)
    mean = CorpusMetrics(statistics, lambda sums: {"mean": sums[..., 0] / sums[..., 1]})
    found = metrics.summarize_corpus(mean, groups, inside)["mean"]
    expected = metrics.estimate(values[inside], groups[inside]).summary()
    assert found == pytest.approx(expected, rel=1e-6)
    one = metrics.summarize_corpus(mean, np.zeros(600, int), inside)["mean"]
    assert one["standard_error"] is None


def test_weighted_means_by_hand():
    values, weights = np.array([1.0, 0.0, 0.5]), np.array([1.0, 2.0, 4.0])
    estimate = metrics.estimate(values, np.arange(3), weights)
    assert estimate.mean == pytest.approx(3 / 7)
    residual = weights * (values - 3 / 7)
    # The factor of fractions 1/7, 2/7 and 4/7: h is 3/7, the expected squares 64/343.
    assert estimate.error == pytest.approx(np.sqrt(147 / 64 * (residual**2).sum()) / 7)
