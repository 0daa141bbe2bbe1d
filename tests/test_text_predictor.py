"""A predictor of texts: its numbers are the model's, whatever text it is given."""

import tracemalloc

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.inference import token_readers
from cbert.inference.text_queries import TextQuery
from cbert.tasks import create
from cbert.training import config as config_lib
from tests.text_predictors import TARGETS, VOCABULARY, assemble

TEXT, CONTEXT = "Please, 7 seats 8", {"mood": "warm", "age": 31}
TOKENS = ["[CLS]", "please", "[UNK]", "7", "seat", "##s", "8", "[SEP]"]


def outputs_by_hand(predictor, tokens, context, segments=None):
    """What the model makes of one text without padding."""
    schema = predictor.schema
    model = config_lib.build_model(predictor.config, schema)
    task = create(predictor.config, model, schema)
    codes = jnp.array([[VOCABULARY.index(token) for token in tokens]], jnp.int32)
    columns = {
        "items": codes,
        "segments": jnp.zeros_like(codes) if segments is None else jnp.array([segments]),
        "context": schema.encode_contexts([context]),
    }
    return jax.jit(task.outputs)(predictor.program.params, columns)


def softmax(logits):
    return np.asarray(jax.nn.softmax(jnp.asarray(logits)))


def near(value):
    return pytest.approx(value, abs=2e-5)


def test_labels_and_their_explanation():
    predictor = assemble("classification")
    result = predictor.predict(TEXT, CONTEXT, k=2)
    expected = softmax(outputs_by_hand(predictor, TOKENS, CONTEXT)[0])
    order = np.argsort(-expected)
    assert [one.label for one in result.labels] == ["xyz"[n] for n in order[:2]]
    assert [one.probability for one in result.labels] == near(expected[order[:2]].tolist())
    assert (result.missing_context, result.unknown_context, result.cut) == ([], {}, False)
    # Each feature's importance is a difference of the log-odds of two predictions.
    explained = predictor.explain(TEXT, {"mood": "odd", "age": 31})
    assert explained.unknown_context == {"mood": ["odd"]}

    def log_odds(context):
        listed = predictor.predict(TEXT, context).labels
        p = next(one.probability for one in listed if one.label == explained.prediction)
        return np.log(p / (1 - p))

    given = log_odds({"mood": "odd", "age": 31})
    assert explained.log_odds == near(given)
    assert explained.features == {
        "mood": near(given - log_odds({"age": 31})),
        "age": near(given - log_odds({"mood": "odd"})),
    }
    assert min(map(abs, explained.features.values())) > 1e-3
    assert explained.uses_context


def test_labels_that_may_hold_together_and_numbers():
    predictor = assemble("multi_label")
    result = predictor.predict(TEXT, CONTEXT, k=1)
    expected = 1 / (1 + np.exp(-np.asarray(outputs_by_hand(predictor, TOKENS, CONTEXT)[0])))
    assert result.labels[0].label == "xyz"[expected.argmax()]
    assert result.labels[0].probability == near(expected.max())
    assert len(result.labels) == 1
    assert set(result.above_half) == {"xyz"[n] for n in np.flatnonzero(expected > 0.5)}
    numbers = assemble("regression")
    standardised = float(outputs_by_hand(numbers, TOKENS, CONTEXT)[0, 0])
    assert numbers.predict(TEXT, CONTEXT).number == pytest.approx(5000 + 10 * standardised)
    explained = numbers.explain(TEXT, CONTEXT)
    assert (explained.probability, explained.log_odds) == (None, None)
    without = numbers.predict(TEXT, {"mood": "warm"}).number
    assert explained.features["age"] == pytest.approx(explained.prediction - without, rel=1e-3)


def test_masked_tokens_and_whether_a_text_follows():
    predictor = assemble("masked_language")
    tokens = ["[CLS]", "a", "[MASK]", "is", "[MASK]", "[SEP]", "red", "[SEP]"]
    result = predictor.predict("A [MASK] is [MASK]", CONTEXT, text_b="red", k=3)
    made = outputs_by_hand(predictor, tokens, CONTEXT, [0, 0, 0, 0, 0, 0, 1, 1])
    logits = made.vectors[0] @ made.table.T + made.bias
    for mask, position in zip(result.masks, (2, 4), strict=True):
        expected = softmax(logits[position])
        order = np.argsort(-expected)[:3]
        assert [one.token for one in mask] == [VOCABULARY[n] for n in order]
        assert [one.probability for one in mask] == near(expected[order].tolist())
    assert result.follows == near(float(softmax(made.next_sentence[0])[0]))
    assert predictor.predict("a [MASK]").follows is None
    # Without a [MASK], what is explained is whether the second text follows.
    explained = predictor.explain("a is", CONTEXT, "red")
    assert explained.prediction == "is_next"
    follows = predictor.predict("a is", CONTEXT, "red")
    assert (follows.masks, follows.follows) == ([], near(explained.probability))
    explained = predictor.explain("A [MASK] is [MASK]", CONTEXT)
    first = predictor.predict("A [MASK] is [MASK]", CONTEXT).masks[0][0]
    assert (explained.prediction, explained.probability) == (
        first.token,
        near(first.probability),
    )


def test_tags_stand_at_the_characters_of_their_words():
    predictor = assemble("tagging")
    text = " Please,  7 seats\x00 8"
    result = predictor.predict(text, CONTEXT)
    logits = outputs_by_hand(predictor, TOKENS, CONTEXT)[0]
    starts = [1, 2, 3, 4, 6]  # The positions of the first piece of each word.
    expected = softmax(logits[jnp.array(starts)])
    assert [one.word for one in result.words] == ["Please", ",", "7", "seats", "8"]
    for word, row in zip(result.words, expected, strict=True):
        assert text[word.start : word.end] == word.word
        assert word.tag == TARGETS["tagging"].values[row.argmax()]
        assert word.probability == near(float(row.max()))
    for span in result.spans:
        assert text[span.start : span.end] == span.text
        assert result.words[span.first_word].start == span.start
    # Words that were given keep their number, also those that have no token or were cut off.
    words = ["7 seats", "\x00", *["red"] * 12]
    given = predictor.predict(words=words, context=CONTEXT)
    assert given.cut
    assert [one.word for one in given.words] == words
    tagged = [one.tag is not None for one in given.words]
    assert tagged == [True, False, *[True] * 7, *[False] * 5]
    joined = " ".join(words)
    assert all(joined[one.start : one.end] == one.word for one in given.words)
    cut = predictor.predict("red " * 14)
    assert [one.tag is not None for one in cut.words] == [True] * 10 + [False] * 4
    explained = predictor.explain(text, CONTEXT)
    marked = [n for n, one in enumerate(result.words) if one.tag != "O"]
    assert explained.word == (marked or [0])[0]
    assert explained.prediction == result.words[explained.word].tag
    assert explained.probability == near(result.words[explained.word].probability)


def test_a_text_is_split_into_words_as_the_training_texts_were():
    text = " Please,  7 seats."
    splits = {
        "punctuation": ["Please", ",", "7", "seats", "."],
        "white_space": ["Please,", "7", "seats."],
    }
    for word_ends, words in splits.items():
        predictor = assemble("tagging", word_ends=word_ends)
        result = predictor.predict(text, CONTEXT)
        assert [one.word for one in result.words] == words
        assert all(text[one.start : one.end] == one.word for one in result.words)
        given = predictor.predict(words=words, context=CONTEXT)
        tags = [(one.tag, near(one.probability)) for one in given.words]
        assert [(one.tag, one.probability) for one in result.words] == tags


def test_a_span_is_that_of_the_task():
    predictor = assemble("span")
    tokens = ["[CLS]", "is", "?", "[SEP]", "7", "seat", "##s", "8", "[SEP]"]
    segments = [0] * 4 + [1] * 5
    passage = "7  Seats 8"
    result = predictor.predict("is?", CONTEXT, text_b=passage)
    logits = np.asarray(outputs_by_hand(predictor, tokens, CONTEXT, segments)[0])
    first, last = (softmax(column) for column in logits.T)
    products = {
        (start, end): first[start] * last[end]
        for start in range(4, 8)
        for end in range(start, 8)
    }
    (start, end), best = max(products.items(), key=lambda pair: pair[1])
    none = first[0] * last[0]
    assert result.no_answer == near(float(none))
    characters = {4: (0, 1), 5: (3, 7), 6: (7, 8), 7: (9, 10)}
    assert (result.answer is not None) == (best > none)
    if result.answer:
        assert result.answer.start == characters[start][0]
        assert result.answer.end == characters[end][1]
        assert result.answer.text == passage[result.answer.start : result.answer.end]
        assert result.answer.probability == near(float(best))
    ranked = sorted(products, key=products.get, reverse=True)
    listed = predictor.predict("is?", CONTEXT, text_b=passage, k=3).spans
    assert [(one.start, one.end) for one in listed] == [
        (characters[start][0], characters[end][1]) for start, end in ranked[:3]
    ]
    assert [one.probability for one in listed] == near([products[one] for one in ranked[:3]])
    assert [len(predictor.predict("is", text_b="7 8", k=k).spans) for k in (2, 50)] == [2, 3]
    explained = predictor.explain("is?", CONTEXT, passage)
    p = max(best, none)
    assert explained.log_odds == near(float(np.log(p / (1 - p))))
    assert predictor.predict("\u0301").answer is None  # An accent alone has no token.


def test_a_batch_gives_what_each_text_gives_alone():
    """Texts of two padded lengths, more of one length than a batch holds, in any order."""
    predictor = assemble("classification", max_length=20)
    texts = ["red", "please " * 17, "7 seats", "a " * 18, "blue ?", "is", "table", "8 " * 30]
    queries = [TextQuery(text, {"age": 3 * n}) for n, text in enumerate(texts)]
    together = predictor.predict_batch(queries)
    assert [result.cut for result in together] == [False] * 7 + [True]
    for query, result in zip(queries, together, strict=True):
        alone = predictor.predict(query.text, query.context)
        assert [one.label for one in alone.labels] == [one.label for one in result.labels]
        assert alone.labels[0].probability == near(result.labels[0].probability)
    vectors = predictor.embed(texts, [query.context for query in queries], pooling="mean")
    assert (vectors.dtype, vectors.shape) == (np.float32, (8, 16))
    for n in (1, 2):
        (alone,) = predictor.embed([texts[n]], [queries[n].context], pooling="mean")
        np.testing.assert_allclose(vectors[n], alone, atol=2e-5)
    assert predictor.predict_batch([]) == []
    with pytest.raises(UserError, match=r"^queries\.0 is 'a'; give what check returned$"):
        predictor.predict_checked(["a"])
    assert predictor.embed([]).shape == (0, 16)


def test_a_query_that_lists_much_costs_the_others_of_a_batch_nothing():
    predictor = assemble("masked_language")
    peaks = []
    for k in (1, len(VOCABULARY)):
        queries = [predictor.check(TextQuery("[MASK] " * 8, k=1)) for _ in range(200)]
        queries.append(predictor.check(TextQuery("[MASK]", k=k)))
        predictor.predict_checked(queries)
        tracemalloc.start()
        results = predictor.predict_checked(queries)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [len(tokens) for one in results for tokens in one.masks] == [*[1] * 1600, k]
    assert peaks[1] < 1.5 * peaks[0]


def test_embeddings_are_the_last_hidden_states():
    predictor = assemble("classification")
    params = predictor.program.params
    (first,) = predictor.embed([TEXT], [CONTEXT])
    # The classifier reads the same vector through its pooler.
    pooled = np.tanh(
        first @ params["pooler"]["dense"]["kernel"] + params["pooler"]["dense"]["bias"]
    )
    logits = pooled @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    np.testing.assert_allclose(
        logits, outputs_by_hand(predictor, TOKENS, CONTEXT)[0], rtol=0, atol=2e-5
    )
    (mean,) = predictor.embed([TEXT], [CONTEXT], pooling="mean")
    assert np.abs(mean - first).max() > 1e-2


def test_a_model_without_context_is_explained_by_zeros():
    predictor = assemble("classification", "none")
    explained = predictor.explain(TEXT, CONTEXT)
    assert (explained.features, explained.uses_context) == ({"mood": 0.0, "age": 0.0}, False)
    for pooling in ("max", ["cls"]):
        with pytest.raises(UserError, match=r"pooling is .*; it must be one of cls, mean"):
            predictor.embed(["a"], pooling=pooling)
    with pytest.raises(UserError, match="contexts must be a list of as many"):
        predictor.embed(["a"], contexts=[])
    with pytest.raises(UserError, match=r"queries\.1: text is empty"):
        predictor.embed(["a", " "])


def test_a_task_of_ones_own_has_no_predictor_yet():
    config = ml_collections.ConfigDict({"task": {"name": "own"}})
    with pytest.raises(UserError, match="the task own has no predictor; evaluate its run"):
        token_readers.create(config, None, None)
