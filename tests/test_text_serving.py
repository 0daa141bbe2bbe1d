"""The server and its page on small runs of texts, over real HTTP and in a real browser."""

import functools
import json
import random

import numpy as np
import pytest

from cbert.errors import UserError
from cbert.evaluation import attention
from cbert.inference.text_queries import TextQuery
from cbert.training import config as config_lib
from tests import fuzz_text_targets, text_predictors
from tests.conftest import refused, serving
from tests.test_event_loop import assert_never_held
from tests.test_page import MARKUP, browser, link, settled, watched  # noqa: F401
from tests.test_serving import ask

TEXT = "please [MASK] table 7"
CONTEXT = {"mood": "warm", "age": 30}
# The attention of this method is shown.
assemble = functools.partial(text_predictors.assemble, method="cross_attention")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Makes the work directory of a model of a task."""
    folder = tmp_path_factory.mktemp("runs")

    def make(task):
        if not (folder / task).exists():
            text_predictors.save(assemble(task), folder / task)
        return folder / task

    return make


@pytest.fixture(scope="module")
def address(workdir):
    """A server that compares a masked language model with itself."""
    run = workdir("masked_language")
    flags = ("--checkpoint=last", "--response_seconds=120")
    with serving(f"--workdir={run}", f"--compare={run}", *flags) as (_, served):
        yield served


def test_responses_are_the_predictors(address):
    predictor = assemble("masked_language")
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
    explanation = predictor.explain(TEXT, CONTEXT)
    assert response["features"] == pytest.approx(explanation.features, abs=1e-4)
    assert response["features"]["mood"] != 0

    status, response = ask(address, "/reading", body)
    assert status == 200
    model = config_lib.build_model(predictor.config, predictor.schema)
    tokens = predictor.check(TextQuery(TEXT, CONTEXT)).tokens
    columns = {"items": tokens.codes[None], "segments": tokens.segments[None]}
    columns["context"] = predictor.schema.encode_contexts([CONTEXT])
    weights = attention.of_one(model, predictor.program.params, columns)
    means = dict(zip(("mood", "age", "(null)"), weights.mean(axis=(0, 1)), strict=True))
    assert response == {"what": "attention", "values": pytest.approx(means, abs=1e-5)}

    queries = [body, {"text": "red", "text_b": "blue"}]
    status, response = ask(address, "/embed", {"queries": queries, "pooling": "mean"})
    assert status == 200
    texts = ([TEXT, "red"], [CONTEXT, None], [None, "blue"])
    vectors = predictor.embed(*texts, pooling="mean")
    np.testing.assert_allclose(response["embeddings"], vectors, atol=1e-4)

    many = [{"text": f"[MASK] {'please ' * n}", "text_b": "red", "k": 1 + n} for n in range(6)]
    status, response = ask(address, "/predict_batch", {"model": "compare", "queries": many})
    assert status == 200
    assert [len(one["masks"][0]) for one in response["predictions"]] == [1, 2, 3, 4, 5, 6]
    follows = [predictor.predict(one["text"], text_b="red").follows for one in many]
    listed = [one["follows"] for one in response["predictions"]]
    assert listed == pytest.approx(follows, abs=1e-4)


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
        ("/embed", {"queries": [{"text": "a"}, {"text": ""}]}, "queries.1"),
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


def test_unusual_requests_are_answered_or_refused(address):
    """`python -m tests.fuzz --target=requests` sends more of them."""
    sentences = []
    for number in range(60):
        try:
            fuzz_text_targets.send(address, random.Random(number), huge=0)
        except UserError as error:
            sentences.append(str(error))
    assert all(map(str.isprintable, sentences))
    assert 10 < len(sentences) < 50


def test_openapi_and_the_schema_describe_texts(address):
    status, document = ask(address, "/openapi.json")
    assert status == 200
    bodies = {
        "/predict": ("PredictBody", "MaskedLanguagePrediction"),
        "/predict_batch": ("PredictBatchBody", "Predictions_MaskedLanguagePrediction_"),
        "/embed": ("EmbedBody", "Embeddings"),
        "/explain": ("ExplainTextBody", "TextExplanation"),
        "/reading": ("ReadingTextBody", "Reading"),
        "/schema": (None, "TextDescription"),
        "/health": (None, "Health"),
    }
    assert set(document["paths"]) == {*bodies, "/metrics"}
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
    assert (described["task"], described["next_sentence"]) == ("masked_language", True)
    assert (described["tokens"], described["max_length"]) == (18, 12)


def test_a_click_masks_a_word(browser, address):  # noqa: F811
    with watched(browser, address) as page:
        page.goto(link(address, text="please red table", context=CONTEXT))
        page.get_by_text("Click a word to mask it.", exact=True).wait_for()
        page.get_by_role("button", name="red", exact=True).focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        first = settled(page)
        assert len(first) == 8
        assert page.evaluate("document.activeElement.title") == "table"
        other = page.locator('[data-model="compare"] .prediction .probability')
        assert other.all_inner_texts() == [probability for _, probability in first]
        assert sorted(page.locator("#bars li .title").all_inner_texts()) == ["age", "mood"]
        read = page.locator("#reading-bars li")
        assert sorted(read.locator(".title").all_inner_texts()) == ["(null)", "age", "mood"]
        percents = [text.split()[0] for text in read.locator(".probability").all_inner_texts()]
        assert sum(map(float, percents)) == pytest.approx(100, abs=2)
        page.get_by_label("mood").select_option("cold")
        changed = settled(page)
        assert changed != first
        page.locator("#text").fill("a please red table")
        assert settled(page) != changed
        assert page.locator(".word.masked").get_attribute("title") == "table"
        page.reload()
        token = settled(page)[0][0].strip()
        assert page.locator(".word.masked").get_attribute("title") == "table"
        page.locator('[data-model="main"] .plus').first.click()
        filled = f"a please red {token}".replace(" ##", "")
        page.wait_for_function(
            "filled => document.getElementById('text').value === filled", arg=filled
        )


def test_words_of_any_script_stand_in_their_order(browser, address):  # noqa: F811
    """Persian from right to left, whose words may hold an invisible character, and emoji."""
    words = ["می\u200cخواهم", "نان", "❤\ufe0f", "."]
    with watched(browser, address) as page:
        page.goto(link(address, text=" ".join(words), masks=[], context={}))
        buttons = page.locator("#words button")
        buttons.nth(3).wait_for()
        assert buttons.all_text_contents() == words
        lefts = buttons.evaluate_all("all => all.map(one => one.getBoundingClientRect().left)")
        assert lefts == sorted(lefts, reverse=True)
        assert page.locator("#text").evaluate("box => getComputedStyle(box).direction") == "rtl"
        buttons.first.focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        settled(page)
        assert page.locator(".word.masked").get_attribute("title") == words[1]
        page.locator('[data-model="main"] .plus').first.focus()
        page.keyboard.press("Enter")
        page.locator(".word.masked").wait_for(state="detached")
        assert page.evaluate("document.activeElement.className") == "word"


def test_the_second_text_and_what_is_written_are_shown(browser, address):  # noqa: F811
    with watched(browser, address) as page:
        page.goto(link(address, text=f"red {MARKUP}", text_b="blue", context={}))
        names = [name.strip() for name, _ in settled(page)]
        assert sorted(names) == ["does not follow", "follows"]
        assert page.locator("#text-b").input_value() == "blue"
        assert page.locator("main img").count() == 0
        page.locator("#text").fill("[MASK] red [MASK]")
        page.get_by_text("Mask 2").first.wait_for()
        assert page.locator(".word.masked").all_inner_texts() == ["1", "2"]
        page.goto(link(address, text="red", masks=[[2, 9]], context={}))
        page.locator("#error").wait_for()
        assert "the link is damaged" in page.locator("#error").inner_text()


def test_runs_of_two_tasks_are_not_compared(workdir):
    runs = (f"--workdir={workdir('tagging')}", f"--compare={workdir('span')}")
    error = refused("serve", *runs, "--checkpoint=last", "--port=0")
    assert "is a run of the task span, but" in error
    assert "compare runs of one task" in error
