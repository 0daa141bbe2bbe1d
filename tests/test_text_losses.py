"""The losses and predictions of the tasks of texts by hand, from given outputs of a model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from cbert.data import text_columns
from cbert.model.heads import Pretraining
from cbert.tasks.classification import Classification
from cbert.tasks.masked_language import MaskedLanguage, MaskedLanguageConfig
from cbert.tasks.multi_label import MultiLabel
from cbert.tasks.regression import Regression
from cbert.tasks.span import Span
from cbert.tasks.tagging import Tagging
from tests import text_predictors
from tests.models import SMALL


def given(task_class):
    """The task with a model's outputs in place of its parameters."""

    class Given(task_class):
        def outputs(self, params, columns, positions=None, rngs=None):
            return params

    return Given


def make(task_class, **fields):
    return given(task_class)(None, text_predictors.schema(task_class.name), **fields)


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def check_loss(task, outputs, columns, expected, count, divisor=5.0):
    """The sum of the losses is `expected`; examples of weight 2 count twice."""
    made = {"divisor": divisor, **columns}
    for weight in (1.0, 2.0):
        weights = {"weight": np.full(len(expected), weight, np.float32)}
        loss, metrics = task.loss(outputs, {**made, **weights}, {})
        total, counted = metrics["loss"]
        assert float(total) == pytest.approx(weight * np.sum(expected), rel=1e-5)
        assert float(counted) == weight * count
        scale = getattr(task, "tagged_words", 1.0) * divisor
        assert float(loss) == pytest.approx(weight * np.sum(expected) / scale, rel=1e-5)


def nats(logits, codes):
    """Cross-entropies, 0 where a code is below zero."""
    own = np.take_along_axis(scipy.special.log_softmax(logits, -1), codes[..., None], -1)
    return np.where(codes >= 0, -own[..., 0], 0)


def test_classification():
    logits, labels = draw(3, 3), np.array([2, -1, 0])
    task, expected = make(Classification), nats(logits, labels)
    check_loss(task, logits, {"label": labels}, expected, 2)
    made = task.predict(jnp.asarray(logits), {"label": np.maximum(labels, 0)}, {})
    np.testing.assert_allclose(made["log_probability"][::2], -expected[::2], rtol=1e-5)
    assert made["prediction"].tolist() == logits.argmax(axis=1).tolist()
    most = scipy.special.softmax(logits, axis=1).max(axis=1)
    np.testing.assert_allclose(made["probability"], most, rtol=1e-5)


def test_several_labels():
    logits = draw(3, 3)
    labels = np.array([[1, 0, 1], [-1, -1, -1], [0, 0, 0]], np.float32)
    odds = np.where(labels > 0, -logits, logits)
    expected = np.where(labels >= 0, np.log1p(np.exp(odds)), 0).sum(axis=1)
    task = make(MultiLabel)
    check_loss(task, logits, {"labels": labels}, expected, 2)
    made = task.predict(jnp.asarray(logits), {"labels": labels}, {})
    np.testing.assert_allclose(made["log_probability"], -expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(made["probability"], scipy.special.expit(logits), rtol=1e-5)


def test_regression():
    """The target has the mean 5000 and the deviation 10."""
    outputs, numbers = draw(3, 1), np.array([5020.0, np.nan, 4995.0], np.float32)
    errors = outputs[:, 0] - [2.0, 0.0, -0.5]
    expected = np.where(np.isfinite(numbers), errors**2 / 2, 0)
    task = make(Regression)
    check_loss(task, outputs, {"number": numbers}, expected, 2)
    made = task.predict(outputs, {}, {})["prediction"]
    np.testing.assert_allclose(made, 5000 + 10 * outputs[:, 0], rtol=2e-7)


def test_tagging():
    logits, tags = draw(2, 4, 3), np.array([[-1, 2, 0, -1], [-1, 1, -1, -1]])
    task, expected = make(Tagging, tagged_words=1.5), nats(logits, tags)
    check_loss(task, logits, {"tags": tags}, expected, 3)
    made = task.predict(jnp.asarray(logits), {"tags": jnp.asarray(tags)}, {})
    means = -expected.sum(axis=1) / [2, 1]
    np.testing.assert_allclose(made["log_probability"], means, rtol=1e-5)
    assert made["tags"][:, :4].tolist() == logits.argmax(axis=2).tolist()
    assert (made["tags"][:, 4:] == -1).all()


def test_spans():
    """Of the second text the last token is padding; an answer that was cut off adds nothing."""
    logits, items = draw(3, 4, 2), np.array([[2, 5, 6, 3], [2, 5, 3, -1], [2, 5, 6, 3]])
    start, end = np.array([1, 0, text_columns.CUT_OFF]), np.array([2, 0, text_columns.CUT_OFF])
    columns = {"items": items, "start": start, "end": end, "segments": np.zeros_like(items)}
    shown = np.where((items >= 0)[..., None], logits, -1e9)
    first, last = np.moveaxis(scipy.special.log_softmax(shown, axis=1), -1, 0)
    own = -(first[range(3), start.clip(0)] + last[range(3), end.clip(0)]) / 2
    task = make(Span)
    check_loss(task, logits, columns, own * [1, 1, 0], 2)
    made = task.predict(jnp.asarray(logits), jax.tree.map(jnp.asarray, columns), {})
    np.testing.assert_allclose(made["log_probability"], -own, rtol=1e-5)


@dataclasses.dataclass(frozen=True)
class Sized:
    """What a task asks of a model besides its outputs."""

    config = SMALL

    @property
    def encoder(self):
        return self


def test_masked_tokens_and_pairs():
    """The schema's labels are not_next and is_next, and the latter is BERT's first class."""
    vectors, table, bias = draw(3, 2, 4), draw(6, 4), draw(6)
    pairs, labels = draw(3, 2), np.array([1, 0, -1])
    targets = np.array([[1, 5], [0, 3], [2, 2]])
    weights = np.array([[1, 1], [1, 0], [1, 1]], np.float32)
    options = MaskedLanguageConfig(next_sentence=True)
    schema = text_predictors.schema("masked_language")
    task = given(MaskedLanguage)(Sized(), schema, options=options)
    batch = {"positions": targets, "targets": targets, "weights": weights, "label": labels}
    outputs = Pretraining(*map(jnp.asarray, (vectors, table, bias, pairs)))
    loss, metrics = task.loss(outputs, {**batch, "divisor": 4.0, "pairs": 8.0}, {})
    tokens = (nats(vectors @ table.T + bias, targets) * weights).sum()
    of_pairs = nats(pairs, np.array([0, 1, -1])).sum()
    assert [float(part) for part in metrics["loss"]] == pytest.approx([tokens, 5])
    found = [float(part) for part in metrics["next_sentence_loss"]]
    assert found == pytest.approx([of_pairs, 2])
    assert float(loss) == pytest.approx(tokens / 4 + of_pairs / 8)
