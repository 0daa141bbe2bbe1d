"""The server and its page on small runs of texts, over real HTTP and in a real browser."""

import json

import numpy as np
import pytest

import cbert
from cbert.inference.text_queries import TextQuery
from cbert.training import loop
from tests import text_data
from tests.conftest import refused, serving
from tests.test_page import MARKUP, browser, link, settled, watched  # noqa: F401
from tests.test_serving import ask
from tests.test_serving_limits import assert_never_held

TEXT = "please [MASK] tables today"
CONTEXT = {"mood": "warm", "asked": "time"}


def trained(folder, task, target, **overrides):
    text_data.prepare_texts(folder, target)
    config = text_data.small_text(task, folder, target, model__layers=1, **overrides)
    loop.train(config, folder / task)
    return folder / task


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """The work directory of a masked language model."""
    steps = {"train__steps": 3, "train__checkpoint_every": 3}
    return trained(tmp_path_factory.mktemp("masked"), "masked_language", "label", **steps)


@pytest.fixture(scope="module")
def address(masked):
    """A server that compares it with itself."""
    flags = (f"--compare={masked}", "--response_seconds=120")
    with serving(f"--workdir={masked}", *flags) as (_, served):
        yield served


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """The work directory of a tagger that has learnt its tags."""
    steps = {f"train__{name}": 120 for name in ("steps", "eval_every", "checkpoint_every")}
    return trained(tmp_path_factory.mktemp("tagger"), "tagging", "tags", **steps)


def test_responses_are_the_predictors(address, masked):
    predictor = cbert.load(masked, batch_sizes=(4,))
    body = {"text": TEXT, "context": CONTEXT}
    status, response = ask(address, "/predict", body | {"k": 7})
    assert status == 200
    wanted = predictor.predict(TEXT, CONTEXT, k=7).to_dict()
    (listed,), (expected,) = response.pop("masks"), wanted.pop("masks")
    assert response == wanted
    assert [one["token"] for one in listed] == [one["token"] for one in expected]
    probabilities = [[one["probability"] for one in tokens] for tokens in (listed, expected)]
    np.testing.assert_allclose(*probabilities, rtol=1e-4)

    status, response = ask(address, "/explain", body)
    assert status == 200
    explanation = predictor.explain(TextQuery(TEXT, CONTEXT))
    assert response["features"] == pytest.approx(explanation.features, abs=1e-4)
    assert response["features"]["mood"] != 0

    queries = [body, {"text": "thanks", "text_b": "well"}]
    status, response = ask(address, "/embed", {"queries": queries, "pooling": "mean"})
    assert status == 200
    texts = (["please [MASK] tables today", "thanks"], [CONTEXT, None], [None, "well"])
    vectors = predictor.embed(*texts, pooling="mean")
    np.testing.assert_allclose(response["embeddings"], vectors, atol=1e-4)

    many = [{"text": f"[MASK] {'please ' * n}", "k": 1 + n} for n in range(6)]
    status, response = ask(address, "/predict_batch", {"model": "compare", "queries": many})
    assert status == 200
    assert [len(one["masks"][0]) for one in response["predictions"]] == [1, 2, 3, 4, 5, 6]


MISTAKES = {
    "no text": ({}, "text is missing"),
    "an empty text": ({"text": " "}, "text is empty"),
    "a number": ({"text": 3}, "text must be a string, not 3"),
    "no mask": ({"text": "please"}, "the text has no [MASK]"),
    "masks that are cut off": ({"text": "[MASK] " * 500}, "stand beyond"),
    "half a surrogate": (b'{"text": "[MASK] \\ud800"}', "end of hex escape"),
    "words are text": ({"words": "please"}, "words must be a list"),
    "a field of sets": ({"items": []}, "items is not a field"),
    "a feature near another": ({"text": TEXT, "context": {"mod": "x"}}, "did you mean 'mood'?"),
    "k is 0": ({"text": TEXT, "k": 0}, "k is 0"),
    "a long text": ({"text": "a " * 60_000}, "has 120,000 characters; give at most 20,000"),
}  # fmt: skip


def test_every_mistake_is_one_sentence(address):
    for name, (body, words) in MISTAKES.items():
        status, response = ask(address, "/predict", body)
        assert (status, list(response)) == (400, ["error"]), name
        assert words in response["error"], name
        assert "\n" not in response["error"]
        assert len(response["error"]) < 400
    for path, body, words in (
        ("/predict_batch", {"queries": [{"text": TEXT}, {}]}, "queries.1: text is missing"),
        ("/predict_batch", {"queries": [{"text": TEXT}] * 65}, "give at most 64"),
        ("/embed", {"queries": [{"text": "a" * 9_000}] * 12}, "have 108,000 characters; give"),
        ("/embed", {"queries": []}, "queries is empty; give at least 1"),
        ("/embed", {"queries": [{"text": "a"}], "pooling": "max"}, "pooling must be 'cls' or"),
        ("/explain", {"text": "please"}, "the text has no [MASK]"),
    ):
        status, response = ask(address, path, body)
        assert status == 400
        assert words in response["error"], path
    assert ask(address, "/complete", {"items": []})[0] == 404
    assert ask(address, "/items")[0] == 404


HOSTILE = {
    "20 000 characters": {"text": "[MASK] " + "a " * 9_990},
    "100 000 characters": {"text": "[MASK] " + "a " * 50_000},
    "one word": {"text": "[MASK] " + "a" * 19_000},
    "accents": {"text": "[MASK] " + "e\u0301\u0301" * 6_000},
    "controls": {"text": "[MASK] " + "\x00\x1f\u202e" * 6_000},
    "words": {"words": ["[MASK]"] + ["a"] * 9_999},
    "masks": {"text": "[MASK]" * 3_300},
    "a megabyte": {"text": "a" * 1_040_000},
}


def test_no_text_holds_the_event_loop(address):
    for name, body in HOSTILE.items():
        bodies = [json.dumps(body).encode()] * 4
        for status, response in assert_never_held(address, bodies, "/predict"):
            assert status in (200, 400), name
            assert ("error" in response) == (status == 400)
        if name == "20 000 characters":
            assert response["cut"] is True


def test_openapi_and_the_schema_describe_texts(address):
    status, document = ask(address, "/openapi.json")
    assert status == 200
    bodies = {
        "/predict": ("PredictBody", "MaskedLanguagePrediction"),
        "/predict_batch": ("PredictBatchBody", "Predictions_MaskedLanguagePrediction_"),
        "/embed": ("EmbedBody", "Embeddings"),
        "/explain": ("ExplainTextBody", "TextExplanation"),
        "/schema": (None, "TextDescription"),
        "/health": (None, "Health"),
    }
    assert set(document["paths"]) == set(bodies)
    for path, (request, response) in bodies.items():
        (route,) = document["paths"][path].values()
        references = [
            json.dumps(route.get("requestBody")),
            json.dumps(route["responses"]["200"]),
        ]
        assert request is None or f'/{request}"' in references[0]
        assert f'/{response}"' in references[1]
    described = ask(address, "/schema")[1]
    assert set(described) <= set(
        document["components"]["schemas"]["TextDescription"]["properties"]
    )
    assert [model["model"] for model in described["models"]] == ["main", "compare"]
    assert (described["task"], described["next_sentence"]) == ("masked_language", False)
    assert sorted(described["target"]["values"]) == ["blue", "cold", "warm"]


def test_a_click_masks_a_word(browser, address):  # noqa: F811
    with watched(browser, address) as page:
        page.goto(link(address, text="please come today", context=CONTEXT))
        page.get_by_text("Click a word to mask it.", exact=True).wait_for()
        page.get_by_role("button", name="come", exact=True).focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        first = settled(page)
        assert len(first) == 8
        assert page.locator(".word.masked").inner_text().startswith("?")
        assert page.evaluate("document.activeElement.title") == "today"
        other = page.locator('[data-model="compare"] .prediction .probability')
        assert other.all_inner_texts() == [probability for _, probability in first]
        features = page.locator("#bars li .title").all_inner_texts()
        assert sorted(features) == ["asked", "mood"]
        page.get_by_label("mood").select_option("cold")
        assert settled(page) != first
        page.locator("#text").fill("now please come today")
        settled(page)
        assert page.locator(".word.masked").get_attribute("title") == "today"
        page.reload()
        shown = settled(page)
        assert page.locator(".word.masked").get_attribute("title") == "today"
        token = shown[0][0].strip()
        page.locator('[data-model="main"] .plus').first.click()
        page.get_by_text("Click a word to mask it.", exact=True).wait_for()
        text = page.locator("#text").input_value()
        assert text.replace(" ", "") == f"now please come {token.removeprefix('##')}".replace(
            " ", ""
        )
        page.goto(link(address, text=f"[MASK] {MARKUP}", context={}))
        page.reload()
        settled(page)
        assert page.locator("main img").count() == 0


def test_tagged_words_are_marked(browser, tagger, masked):  # noqa: F811
    with serving(f"--workdir={tagger}") as (_, address), watched(browser, address) as page:
        page.goto(link(address, text="please 7 tables \U0001f600", context=CONTEXT))
        settled(page)
        mark = page.locator(".marked mark")
        assert mark.inner_text().split("%")[0].split()[:2] == ["7", "time"]
        assert page.locator(".marked").inner_text().endswith("tables \U0001f600")
        page.get_by_label("asked").select_option("people")
        settled(page)
        assert "people" in mark.inner_text()
        assert "Log-odds of B-people at “7”" in page.locator("#explained").inner_text()
        assert page.locator("#pair").is_hidden()
    error = refused("serve", f"--workdir={tagger}", f"--compare={masked}", "--port=0")
    assert "is a run of the task masked_language, but" in error
    assert "compare runs of one task" in error
