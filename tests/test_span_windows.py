"""A long passage is predicted in the windows that `prepare` would make of it."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data import text_examples
from cbert.data.records import Record
from cbert.data.text import Tokenizer
from cbert.data.text_records import Text
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_program import TextFunctions, TextProgram
from cbert.inference.text_queries import TextQuery
from cbert.serving import text_routes
from cbert.serving.limits import Limits, RefusalError
from experiments import predict
from tests import text_predictors
from tests.conftest import serving
from tests.test_serving import ask
from tests.text_predictors import VOCABULARY, assemble

BLUE, RED, CLS = (VOCABULARY.index(token) for token in ("blue", "red", "[CLS]"))
# With `is ?` and three special tokens there is room for seven of twelve tokens, three apart:
# words 0 to 6, 3 to 9, 6 to 12 and 9 to 14.
QUESTION, WORDS = "is ?", ["red", "a", *["seat"] * 9, "Blue", *["table"] * 3]
PASSAGE = "  ".join(WORDS)


def with_stride(predictor, stride, functions=None):
    """The same predictor, or one with other functions, of a schema with that stride."""
    target = dataclasses.replace(predictor.schema.target, stride=stride)
    schema = dataclasses.replace(predictor.schema, target=target)
    program = predictor.program
    if functions is not None:
        program = TextProgram(functions, program.params, schema, (4,))
    return TextPredictor(schema, predictor.config, 3, program, uses_context=True)


def by_tokens(params, tokens, segments, context):
    """Logits by hand: 1 and 1 at [CLS], 2 and 3 at `red`, 4 and 4 at `blue`, else 0."""
    first = 1.0 * (tokens == CLS) + 2.0 * (tokens == RED) + 4.0 * (tokens == BLUE)
    last = 1.0 * (tokens == CLS) + 3.0 * (tokens == RED) + 4.0 * (tokens == BLUE)
    return {"logits": jnp.stack([first, last], axis=-1)}


def log_probability(own, *others):
    """By hand: of a token with the logit `own` beside others."""
    return own - np.log(np.exp([own, *others]).sum())


def test_the_answer_stands_in_the_third_window():
    predictor = with_stride(assemble("span"), 3, TextFunctions(by_tokens, {}))
    result = predictor.predict(QUESTION, text_b=PASSAGE, k=2)
    answer, second = result.spans
    assert result.answer == answer
    assert not result.cut
    start = PASSAGE.index("Blue")
    assert (answer.text, answer.start, answer.end) == ("Blue", start, start + 4)
    assert (second.text, second.start, second.end) == ("red", 0, 3)
    # No answer is least probable in the third window, of twelve tokens: [CLS], blue, ten more.
    none = 2 * log_probability(1, 4, *[0] * 10)
    assert result.no_answer == pytest.approx(np.exp(none), rel=1e-5)
    assert answer.probability == pytest.approx(np.exp(none + (4 + 4) - (1 + 1)), rel=1e-5)
    # In the first window `red` is e^3 times as probable as no answer.
    assert second.probability == pytest.approx(np.exp(none + (2 + 3) - (1 + 1)), rel=1e-5)
    # Two windows hold the answer, and the list holds it once.
    listed = predictor.predict(QUESTION, text_b=PASSAGE, k=90).spans
    places = [(one.start, one.end) for one in listed]
    assert len(places) == len(set(places)) > 40


def test_without_a_stride_the_passage_is_cut():
    predictor = with_stride(assemble("span"), 0, TextFunctions(by_tokens, {}))
    result = predictor.predict(QUESTION, text_b=PASSAGE, k=1)
    assert (result.answer.text, result.cut) == ("red", True)
    none = log_probability(1, 2, *[0] * 10) + log_probability(1, 3, *[0] * 10)
    assert result.no_answer == pytest.approx(np.exp(none), rel=1e-5)
    assert result.answer.probability == pytest.approx(np.exp(none + 3), rel=1e-5)


def test_no_answer_is_the_least_over_windows():
    """Where all spans are less probable than none in their windows, none is the answer."""
    predictor = with_stride(assemble("span"), 3, TextFunctions(by_tokens, {}))
    passage = " ".join(["seat"] * 9)  # Windows of seven and of six words.
    result = predictor.predict(QUESTION, text_b=passage, k=3)
    assert result.answer is None
    none = 2 * log_probability(1, *[0] * 11)
    assert result.no_answer == pytest.approx(np.exp(none), rel=1e-5)
    assert [one.probability for one in result.spans] == pytest.approx(
        [np.exp(none - 2)] * 3, rel=1e-5
    )
    shown = predict.format_prediction(result).splitlines()
    assert [line.split()[0] for line in shown[:3]] == ["answer", "(none)", "seat"]
    explained = predictor.explain(QUESTION, {"age": 30}, passage)
    assert (explained.prediction, explained.features["age"]) == (None, 0)
    assert explained.probability == pytest.approx(np.exp(none), rel=1e-5)


@pytest.mark.parametrize("passage", ["7 seats", "red blue is please table 7 8"])
def test_a_passage_that_fits_is_predicted_as_without_a_stride(passage):
    plain = assemble("span")
    context = {"mood": "warm", "age": 31}
    query = (QUESTION, context, passage)
    assert with_stride(plain, 3).predict(*query) == plain.predict(*query)
    assert with_stride(plain, 3).explain(*query) == plain.explain(*query)


def test_long_passages_in_a_batch_are_those_alone():
    """The windows of several passages are computed together, and explained by all of them."""
    predictor = with_stride(assemble("span"), 2)
    queries = [
        TextQuery(QUESTION, {"age": 9 * n}, " ".join(WORDS[n:] * (n + 1)), k=3)
        for n in range(4)
    ]
    queries.insert(1, TextQuery("is", {"mood": "cold"}, "7 seats", k=3))
    for query, result in zip(queries, predictor.predict_batch(queries), strict=True):
        (alone,) = predictor.predict_batch([query])
        assert alone.spans[0].text == result.spans[0].text
        assert alone.spans[0].probability == pytest.approx(result.spans[0].probability, 1e-3)
        for one in result.spans:
            assert query.text_b[one.start : one.end] == one.text
        explained = predictor.explain(query.text, query.context, query.text_b)
        likeliest = max(alone.no_answer, alone.answer.probability if alone.answer else 0)
        assert explained.probability == pytest.approx(likeliest, 1e-3)


@pytest.mark.parametrize(
    ("text", "text_b"),
    [
        ("is ?", PASSAGE),
        (PASSAGE, None),
        ("please is a red table ?", PASSAGE),  # Half of the room is the question's.
        ("is ?", "a red seats" + "s" * 9 + " 7 " + "é?" * 20),
    ],
)
def test_windows_are_those_of_prepared_data(text, text_b):
    predictor = with_stride(assemble("span"), 3)
    encoded = predictor.check(TextQuery(text, None, text_b))
    record = Record("1", "1", [], {}, "", None, Text(text, text_b))
    tokenizer = Tokenizer(predictor.schema)
    made = list(text_examples.windows([record], tokenizer, 3))
    expected = [tokenizer.encode(one.text.text, one.text.text_b) for one in made]
    assert len(made) > 2
    for window, tokens in zip(encoded.windows, expected, strict=True):
        np.testing.assert_array_equal(window.tokens.codes, tokens.codes)
    passage = text if text_b is None else text_b
    for window, one in zip(encoded.windows, made, strict=True):
        part = one.text.text if text_b is None else one.text.text_b
        assert passage[window.start :].startswith(part)
    assert encoded.cut == (text.count(" ") == 5)  # The long question is cut.


def test_a_request_whose_windows_are_too_long_is_refused():
    predictor = with_stride(assemble("span"), 1)
    encoded = [predictor.check(TextQuery(QUESTION, None, PASSAGE))] * 3
    # Nine windows, each of 2 + 7 words and three special tokens.
    text_routes._check_windows(encoded, Limits(window_tokens=3 * 9 * 12))
    with pytest.raises(RefusalError) as refused:
        text_routes._check_windows(encoded, Limits(window_tokens=3 * 9 * 12 - 1))
    assert refused.value.detail == (
        "the passages make windows of 324 tokens; give shorter or fewer ones, of at most 323"
    )
    # A passage that is cut makes none.
    cut = assemble("span").check(TextQuery(QUESTION, None, PASSAGE))
    text_routes._check_windows([cut], Limits(window_tokens=1))


def test_an_explanation_reads_the_windows_once_for_each_context(tmp_path):
    """3 985 windows of twelve tokens, as given and without each of the two features."""
    text_predictors.save(with_stride(assemble("span"), 1), tmp_path / "run")
    body = {"text": QUESTION, "text_b": "a " * 3_991, "context": {"mood": "warm", "age": 31}}
    flags = (f"--workdir={tmp_path / 'run'}", "--checkpoint=last", "--response_seconds=120")
    with serving(*flags) as (_, address):
        assert ask(address, "/predict", body)[0] == 200
        status, response = ask(address, "/explain", body)
        assert (status, response["error"].partition(";")[0]) == (
            400,
            "the passages make windows of 143,460 tokens",
        )
        assert ask(address, "/explain", body | {"context": None})[0] == 200
