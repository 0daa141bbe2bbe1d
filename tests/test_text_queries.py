"""Texts that nobody should send, and queries that are refused before anything is computed."""

import dataclasses
import json

import numpy as np
import pandas
import pytest

from cbert.errors import UserError
from cbert.inference.text_checks import TextChecker
from cbert.inference.text_queries import TextQuery
from tests.text_predictors import assemble

NASTY = [
    "",
    " \t\n",
    "\x00",
    "\x00\x1b[31m\u202e\ufeff",
    "\ud800 red",
    "x" * 100_000,
    "a " * 50_000,
    "[MASK] " * 500,
    "[PAD] [SEP] [CLS]",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0300\u0301 漢字",
]
REFUSALS = [
    ("classification", {"text": None}, "text is missing"),
    ("classification", {"text": 7}, "text must be a string, not 7"),
    ("classification", {"text": " "}, "text is empty"),
    ("classification", {"text": "\u200b\ufffd"}, "text has invisible characters only"),
    ("classification", {"text": "a", "k": 0}, "k is 0; it must be a whole number, at least 1"),
    ("classification", {"text": "a", "context": {"moot": 1}}, "did you mean 'mood'"),
    ("classification", {"words": ["a"], "text_b": "b"}, "give words or text_b, not both"),
    ("classification", {"text": "a", "text_b": " "}, "text_b is empty"),
    ("classification", {"words": "ab"}, "words must be a list of strings"),
    ("tagging", {"text": "a", "text_b": "b"}, "leave text_b out"),
    ("tagging", {"words": ["a", ""]}, "a word is empty"),
    ("tagging", {"words": ["\u200b"]}, "words has invisible characters only"),
    ("tagging", {"words": ["a" * 500_001] * 2}, "words has more than 1,000,000 characters"),
    ("masked_language", {"text": "a"}, r"the text has no \[MASK\]"),
    ("masked_language", {"text": "a " * 9 + "[MASK] [MASK]"}, "1 of them stand beyond"),
    ("masked_language", {"text": "a", "text_b": "a " * 9 + "[MASK]"}, "1 of them stand beyond"),
]


@pytest.mark.parametrize("task", ["classification", "tagging", "masked_language", "span"])
def test_nasty_texts_give_a_result_or_one_line(task):
    predictor = assemble(task)
    queries = [
        TextQuery(text, text_b=text_b)
        for text in NASTY
        for text_b in (None, *([] if task == "tagging" else ["red [MASK]"]))
    ]
    encoded, refusals = [], []
    for query in queries:
        try:
            encoded.append(predictor.check(query))
        except UserError as error:
            refusals.append(str(error))
    results = predictor.predict_checked(encoded)
    assert len(results) + len(refusals) == len(queries)
    assert all(json.dumps(result.to_dict()) for result in results)
    assert results
    assert all(line.isprintable() for line in refusals)
    assert any("is empty" in line for line in refusals)
    assert any("is not valid Unicode" in line for line in refusals)


@pytest.mark.parametrize(("task", "query", "message"), REFUSALS)
def test_a_wrong_query_is_refused_before_anything_is_computed(task, query, message):
    predictor = assemble(task)
    with pytest.raises(UserError, match=message):
        predictor.check(TextQuery(**query))
    with pytest.raises(UserError, match=r"a query is 'a'; give a mapping .*, or a TextQuery"):
        predictor.predict_batch(["a"])


def test_given_words_are_tagged_and_other_tasks_read_the_text():
    query = TextQuery("red seat", words=["red seat"])
    assert assemble("tagging").check(query).words == [("red seat", 0, 8)]
    assert assemble("classification").check(TextQuery("red", words=["blue"])).text == "red"


def test_queries_may_be_the_rows_of_a_data_frame():
    """A mapping is taken as a line of a file of queries is, and NaN as missing."""
    frame = pandas.DataFrame({"text": ["red", "a"], "label": ["x", None], "k": [1, np.nan]})
    rows = frame.astype({"k": object}).to_dict("records")
    rows[0] |= {"context": {"mood": "cold", "age": np.nan}, "k": np.int64(1)}
    predictor = assemble("classification")
    wanted = [TextQuery("red", {"mood": "cold"}, k=1), TextQuery("a")]
    assert predictor.predict_batch(rows) == predictor.predict_batch(wanted)
    for row, message in (
        ({"txt": "a"}, "queries.1: unknown field 'txt'; drop it, or use one of text, context"),
        ({"text": np.nan}, "queries.1: no 'text' or 'words'; give a text"),
        ({"text": "a", "context": {"moo": "cold"}}, "queries.1: .* did you mean 'mood'"),
    ):
        with pytest.raises(UserError, match=message):
            predictor.predict_batch([{"text": "a"}, row])


def test_all_labels_are_listed_where_there_are_fewer_than_k():
    predictor = assemble("classification")
    assert len(predictor.predict("a", k=10**6).labels) == len(predictor.schema.target.values)


def test_a_small_vocabulary_does_not_limit_how_many_labels_are_listed():
    predictor = assemble("classification")
    more = len(predictor.schema.items) + 5
    assert predictor.check(TextQuery("a", k=more)).k == more
    tokens = assemble("masked_language")
    listed = tokens.predict("a [MASK]", k=more).masks[0]
    assert {one.token for one in listed} == {*tokens.schema.items}


@pytest.mark.parametrize(
    ("pairs", "text_b", "message"),
    [("all", None, "trained on pairs of texts; give text_b"), ("none", "b", "leave it out")],
)
def test_a_pair_is_asked_for_as_it_was_trained(pairs, text_b, message):
    schema = assemble("classification").schema
    target = dataclasses.replace(schema.target, pairs=pairs)
    checker = TextChecker(dataclasses.replace(schema, target=target), "classification")
    other = "b" if text_b is None else None
    assert checker.query(TextQuery("a", text_b=other)).text_b == other
    with pytest.raises(UserError, match=message):
        checker.query(TextQuery("a", text_b=text_b))
    assert checker.query(TextQuery("a", text_b=text_b), predicted=False).text_b == text_b
