"""Several labels, numbers and answers: by hand, and learnt where the context decides them."""

import dataclasses
import functools
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data import prepare, prepared
from cbert.data.prepare_options import TextOptions
from cbert.data.text import Tokenizer
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.evaluation import compare
from cbert.inference import span_reader
from cbert.inference.text_checks import Window
from cbert.schema import schema_file
from cbert.tasks import answers
from cbert.tasks.metric import CROSS_ENTROPY
from cbert.tasks.multi_label import MultiLabel
from cbert.tasks.regression import Regression
from cbert.tasks.span import Span, best_span
from cbert.tasks.text_task import ExampleQueries
from cbert.training import config as config_lib
from tests import text_predictors
from tests.test_text_tasks import LEARNS, evaluated
from tests.text_data import prepare_texts, small_text


def queries(**targets):
    count = len(next(iter(targets.values())))
    return ExampleQueries(np.arange(count), targets, np.ones(count), 0)


def test_f1_of_several_labels_by_hand():
    task = MultiLabel(None, None)
    labels = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0.0]], np.float32)
    true = queries(labels=labels, unknown_labels=np.zeros(3, np.int32))
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
    # Around their mean 7/3 the numbers have the squares 16/9, 1/9 and 25/9, 14/3 in all.
    assert measured(np.ones(3))["r_squared"] == pytest.approx(1 - 5 / (14 / 3))
    # With the second one twice the mean is 9/4, and the squares are 25/16, 1/8 and 49/16.
    weighted = measured(np.array([1.0, 2.0, 1.0]))["r_squared"]
    assert weighted == pytest.approx(1 - 9 / (25 / 16 + 1 / 8 + 49 / 16))


def test_what_does_not_vary_has_no_correlation():
    random = np.random.default_rng(0)
    own, theirs = random.normal(3, 1, size=(2, 60)).astype(np.float32)
    own[:40], theirs[:40] = own[0], theirs[0]
    task, true = Regression(None, None), queries(number=theirs)
    measured = task.corpus_metrics({"prediction": own}, true)
    for count in range(2, 41):
        found = measured((np.arange(60) < count) * 1.0)
        assert (found["pearson"], found["r_squared"]) == (0, 0)


def test_runs_whose_lists_have_many_lengths_are_compared():
    table = {"tags": [["O"], ["O", "B-town"]], "n": np.arange(2)}
    evaluation = types.SimpleNamespace(
        queries=types.SimpleNamespace(rows=np.arange(2), weights=np.array([1.0, 3.0])),
        split=types.SimpleNamespace(ids=["a", "b"]),
        task=types.SimpleNamespace(
            table=lambda split, queries: table,
            metrics=(types.SimpleNamespace(name="cross_entropy"),),
        ),
        schema=types.SimpleNamespace(items=("x",)),
        groups=np.array(["a", "b"]),
        settings={"data": "d", "masking": "each"},
        measured={
            "model": types.SimpleNamespace(values={"cross_entropy": np.array([1.0, 2.0])})
        },
    )
    assert compare.paired(evaluation, evaluation)["mean"] == 0
    # The second query has three times the weight, and is worse by 2, the first one by 1.
    worse = {"model": types.SimpleNamespace(values={"cross_entropy": np.array([2.0, 4.0])})}
    other = types.SimpleNamespace(**{**vars(evaluation), "measured": worse})
    assert compare.paired(evaluation, other)["mean"] == (1 + 3 * 2) / 4
    other.groups = evaluation.groups = np.array(["a", "a"])  # Nothing is known of others.
    unknown = dict.fromkeys(("standard_error", "low", "high"))
    assert compare.paired(evaluation, other) == {"mean": 1.75, **unknown}
    assert "one group: none" in compare.format_paired(
        "a", {"b": {"mean": 1.75, **unknown}}, CROSS_ENTROPY
    )
    other.settings = {"data": "d", "masking": "one"}
    other.task = types.SimpleNamespace(table=lambda split, queries: {"tags": []})
    with pytest.raises(UserError, match="of d with masking each and d with masking one;"):
        compare.paired(evaluation, other)
    other.schema = types.SimpleNamespace(items=("y",))
    with pytest.raises(UserError, match="the runs have different vocabularies"):
        compare.paired(evaluation, other)


def test_runs_that_choose_among_other_labels_are_not_compared(tmp_path):
    """Fewer labels have the smaller cross-entropy whatever is predicted."""
    prepare_texts(tmp_path / "data", "labels")
    schema = prepared.load_schema(str(tmp_path / "data"), "texts_labels")
    values, counts = schema.target.values[:-1], schema.target.counts[:-1]
    fewer = dataclasses.replace(schema.target, values=values, counts=counts)
    runs = {"all": schema, "fewer": dataclasses.replace(schema, target=fewer)}
    for name, own in runs.items():
        (tmp_path / name).mkdir()
        config_lib.save(small_text("multi_label", tmp_path, "labels"), tmp_path / name)
        schema_file.save(own, tmp_path / name / "schema.json")
    workdirs = [str(tmp_path / name) for name in runs]
    compare.check_comparable(workdirs[:1] * 2)
    with pytest.raises(UserError, match="the runs have different labels, so that their"):
        compare.check_comparable(workdirs)


def test_the_best_span_is_that_of_all_pairs():
    random = np.random.default_rng(0)
    first, last = random.normal(size=(2, 40, 9)).astype(np.float32)
    passage = random.random((40, 9)) < 0.7
    passage[:, 4] = True
    start, end, score = (
        np.asarray(part)
        for part in best_span(jnp.asarray(first), jnp.asarray(last), (passage, passage), 3)
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


PASSAGES = ("7 seats, please", "seat's table8 redss??", "seats", "?seats 8 tables blues")


class GivenSpan(Span):
    """The task, with logits in place of parameters."""

    def outputs(self, params, columns, positions=None, rngs=None):
        return params


@functools.lru_cache
def predict(schema):
    return jax.jit(GivenSpan(None, schema, max_answer=6).predict)


def predicted(schema, tokens, logits):
    """The first and the last token of an answer, by the task and by the predictor's reader."""
    columns = {"items": tokens.codes[None], "segments": tokens.segments[None]}
    columns |= {"start": np.zeros(1, int), "end": np.zeros(1, int)}
    made = predict(schema)(logits[None], columns, {})
    query = types.SimpleNamespace(windows=[Window(tokens, np.arange(len(tokens)))])
    scores = span_reader.scored([{"logits": logits}])
    (span,) = span_reader.SpanReader(schema, 6).best(query, scores, 1)
    read = (span.first, span.last) if span.log_odds > 0 else (0, 0)
    assert (int(made["start"][0]), int(made["end"][0])) == read
    return read


@pytest.mark.parametrize("whole_words", [True, False])
def test_answers_are_whole_words_where_all_of_training_are(whole_words):
    plain = text_predictors.schema("span", max_length=24)
    target = dataclasses.replace(plain.target, whole_words=whole_words)
    schema = dataclasses.replace(plain, target=target)
    tokenizer, random = Tokenizer(schema), np.random.default_rng(0)
    inside = 0
    for passage in PASSAGES * 20:
        tokens = tokenizer.encode("is ?", passage)
        logits = random.normal(size=(len(tokens), 2)).astype(np.float32)
        logits[0] = -9
        start, end = predicted(schema, tokens, logits)
        words, scores = tokens.words, {}
        for first, last in itertools.combinations_with_replacement(range(4, len(words) - 1), 2):
            whole = words[first] != words[first - 1] and words[last] != words[last + 1]
            if last - first < 6 and (whole or not whole_words):
                scores[first, last] = logits[first, 0] + logits[last, 1]
        assert (start, end) == max(scores, key=scores.get)
        inside += words[start] == words[start - 1] or words[end] == words[end + 1]
    assert (inside == 0) == whole_words


def test_an_answer_does_not_end_inside_a_word():
    plain = text_predictors.schema("span", max_length=24)
    target = dataclasses.replace(plain.target, whole_words=True)
    schema = dataclasses.replace(plain, target=target)
    tokens = Tokenizer(schema).encode("is ?", "7 seats, red")
    # [CLS] is ? [SEP] 7 seat ##s [UNK] red [SEP]
    logits = np.zeros((10, 2), np.float32)
    logits[6, 0], logits[5, 1] = 9, 9  # It begins at ##s, or ends at seat.
    logits[5, 0] = logits[6, 1] = 5
    assert predicted(plain, tokens, logits) == (5, 5)
    assert predicted(schema, tokens, logits) == (5, 6)
    logits[0] = 7  # There is none, rather than a part of a word.
    assert predicted(schema, tokens, logits) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "true", "same", "score"),
    [
        ("The  Eiffel-Tower!", "eiffeltower", 1, 1),
        ("in Paris, France", "the Paris", 0, 2 * 1 / (3 + 1)),
        ("a b b c", "b b d", 0, 2 * 2 / (3 + 3)),  # One article goes, two words agree.
        ("Rome", "Paris", 0, 0),
        (None, None, 1, 1),
        (None, "Paris", 0, 0),
        ("Paris", None, 0, 0),
        ("an", None, 1, 1),  # Nothing is left of it.
        ("another", "other", 0, 0),
    ],
)
def test_answers_are_compared_as_by_squad(answer, true, same, score):
    assert answers.exact_match(answer, true) == same
    assert answers.f1(answer, true) == pytest.approx(score)


def test_answers_are_cut_out_of_the_passage(tmp_path):
    passage = "It's in the OLD town, near Café-Rouge (the red one)."
    rows = [
        {
            "id": "1",
            "text": "where",
            "text_b": passage,
            "answer": {"text": "OLD town", "start": 12},
        },
        {"id": "2", "text": "who", "text_b": passage, "answer": None},
    ]
    rows = [{**row, "split": "train"} for row in rows]
    rows.append({**rows[0], "id": "3", "split": "validation"})
    validator = Validator("text")
    read = [validator(row, line) for line, row in enumerate(rows, 1)]
    options = prepare.PrepareOptions(
        kind="text",
        text=TextOptions(vocabulary_size=100, max_length=60, target="answer"),
    )
    prepare.prepare(read, tmp_path, "two", options)
    schema = prepared.load_schema(str(tmp_path), "two")
    split = prepared.load(str(tmp_path), "two", "train", schema)
    order = [split.ids[row] for row in range(2)]
    task = Span(None, schema)
    true = task.queries(split, "")
    start, end = (split.targets[name].copy() for name in ("start", "end"))
    columns = task.prediction_columns({"start": start, "end": end}, true)
    assert dict(zip(order, columns["prediction"], strict=True)) == {"1": "OLD town", "2": None}
    assert list(true.targets["answer"]) == columns["prediction"]
    # The next token is a comma, which does not count.
    answered = order.index("1")
    end[answered] += 1
    longer = task.prediction_columns({"start": start, "end": end}, true)["prediction"]
    assert longer[answered] == "OLD town,"
    values = task.metric_values({"start": start, "end": end}, true)
    assert values["exact_match"].tolist() == values["f1"].tolist() == [1, 1]
    assert values["answerable_accuracy"].tolist() == [1, 1]
    assert "cross_entropy" not in values


@pytest.mark.soak
@pytest.mark.parametrize(
    ("task", "target", "metric", "least"),
    [
        ("multi_label", "labels", "exact_match", 0.95),
        ("regression", "number", "pearson", 0.95),
        ("span", "answer", "exact_match", 0.95),
    ],
)
def test_a_context_is_learnt(task, target, metric, least, tmp_path):
    prepare_texts(tmp_path / "data", target)
    config = small_text(task, tmp_path / "data", target, **LEARNS)
    _, summary = evaluated(tmp_path / "run", config, by=("mood",))
    assert summary["results"]["model"][metric]["mean"] > least
    assert set(summary["by_mood"]) == {"warm", "cold"}
