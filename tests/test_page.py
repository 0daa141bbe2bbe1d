"""The page, in a real browser."""

import contextlib
import json
import os
import shutil
import urllib.parse

import pytest

from tests.conftest import lines, run, serving

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MARKUP = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def browser():
    # `.ci/run` sets this variable, because there the tests must not be skipped.
    skip = pytest.fail if os.environ.get("CBERT_TEST_BROWSER") == "required" else pytest.skip
    try:
        from playwright import sync_api
    except ModuleNotFoundError:
        skip("playwright is not installed: tests/requirements.txt")
    if not BROWSER:
        skip("no browser is installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@contextlib.contextmanager
def watched(browser, address):
    """A page that must fetch from its own server alone and report no error of its own."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    opened.set_default_timeout(20_000)
    fetched, complaints = [], []
    opened.on("request", lambda request: fetched.append(request.url))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    yield opened
    opened.close()
    assert [url for url in fetched if not url.startswith(address)] == []
    # The browser itself reports every refusal.
    assert [text for text in complaints if "status of 400" not in text] == []


@pytest.fixture
def page(browser, served):
    with watched(browser, served) as opened:
        yield opened


def settled(page):
    """Waits for the newest predictions; returns the first panel's ranking as shown."""
    page.locator("body[data-state=settled]").wait_for()
    rows = page.locator('[data-model="main"] .prediction')
    return list(
        zip(
            rows.locator(".name").all_inner_texts(),
            rows.locator(".probability").all_inner_texts(),
            strict=True,
        )
    )


def link(served, **state):
    return f"{served}/#{urllib.parse.quote(json.dumps(state))}"


def test_a_click_masks_a_card(page, served, schema):
    items = list(schema.items[:3])
    page.goto(link(served, items=items, context={}))
    before = settled(page)
    assert len(before) == 8
    face = page.locator(".card .face").first
    assert face.get_attribute("aria-pressed") == "false"
    face.focus()
    page.keyboard.press("Enter")
    after = settled(page)
    assert page.locator(".card .face").first.get_attribute("aria-pressed") == "true"
    assert page.evaluate("document.activeElement.className") == "face"
    assert after != before
    assert page.locator(".card").count() == 3
    page.locator(".card .remove").nth(1).click()
    settled(page)
    assert page.locator(".card .face").evaluate_all(
        "cards => cards.map(card => card.title)"
    ) == [items[0], items[2]]


def test_a_search_and_a_prediction_add_items(page, served, schema):
    page.goto(link(served, items=[], context={}))
    settled(page)
    page.get_by_label("Add an item").fill("a b c d e f g h i j k l m n o p q")
    page.locator(".matches [role=alert]").wait_for()
    assert "give at most 16" in page.locator(".matches").inner_text()
    assert page.locator("#error").is_hidden()
    page.get_by_label("Add an item").fill("bag")
    page.locator(".matches button").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settled(page)
    assert " bag" in page.locator(".card .title").first.inner_text()
    page.locator('[data-model="main"] .plus').first.click()
    settled(page)
    assert page.locator(".card").count() == 2
    assert page.locator(".card svg path").count() == 4


def test_the_keyboard_keeps_its_place(page, served, schema):
    page.goto(link(served, items=list(schema.items[:2]), context={}))
    settled(page)
    search, matches = page.get_by_label("Add an item"), page.locator(".matches")
    search.fill("bag")
    matches.locator("button").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    page.wait_for_timeout(1000)  # An empty search would list all items.
    assert search.input_value() == "bag"
    assert matches.is_hidden()
    assert page.evaluate("document.activeElement.id") == "search"
    page.locator(".card .remove").last.focus()
    page.keyboard.press("Tab")  # Into the search and, at once, out of it.
    page.keyboard.press("Tab")
    page.wait_for_timeout(1000)
    assert page.evaluate("document.activeElement.id") == "forget"
    assert matches.is_hidden()
    third = page.locator('[data-model="main"] .plus').nth(2)
    third.focus()
    page.keyboard.press("Enter")
    settled(page)
    assert page.locator(".card").count() == 3
    assert third.evaluate("button => button === document.activeElement")


def test_a_slider_changes_the_ranking_of_both_models(page, served, schema):
    page.goto(
        link(served, items=list(schema.items[:3]), context={"age": 20, "occasion": "work"})
    )
    before = settled(page)
    titles = [title.split(" step")[0] for title in page.locator(".panel h3").all_inner_texts()]
    assert titles == ["[GSU] main", "[GSU] compare"]
    slider = page.get_by_role("slider", name="age")
    assert slider.input_value() == "20"
    slider.fill("68")
    after = settled(page)
    assert after != before
    assert page.locator("#feature-age").input_value() == "68"
    other = page.locator('[data-model="compare"] .prediction .probability').all_inner_texts()
    assert other == [probability for _, probability in after]
    features = page.locator("#bars li .title").all_inner_texts()
    assert sorted(features) == ["age", "occasion"]
    page.get_by_label("age is not known").check()
    assert settled(page) != after
    assert page.locator("#bars li .title").all_inner_texts() == ["occasion"]


def test_a_number_of_seven_digits_is_seen_whole(page, served):
    page.goto(link(served, items=[], context={"age": 1500000}))
    settled(page)
    box = page.locator("#feature-age")
    assert box.input_value() == "1500000"
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_the_link_restores_the_state(page, browser, served, schema):
    page.goto(served)
    settled(page)
    assert page.locator(".card").count() == 5
    page.locator(".card .face").nth(1).click()
    page.get_by_label("occasion").select_option("party")
    page.locator(".chip", has_text="navy").click()
    shown = settled(page)
    cards = page.locator(".card").all_inner_texts()
    other = browser.new_page()
    other.goto(page.url)
    assert settled(other) == shown
    assert other.locator(".card").all_inner_texts() == cards
    assert other.get_by_label("occasion").input_value() == "party"
    assert other.locator(".chip input:checked").count() == 1
    other.close()


def test_errors_and_names_are_shown_as_text(page, served):
    page.goto(link(served, items=[MARKUP], context={}))
    settled(page)
    assert page.locator(".card .title").inner_text() == MARKUP
    assert MARKUP in page.locator("#notes").inner_text()
    assert page.locator("main img").count() == 0
    page.goto(link(served, items=[], context={"age": MARKUP}))
    page.locator("#error").wait_for()
    assert (
        "context feature 'age' is numerical, not '<img src=x"
        in page.locator("#error").inner_text()
    )
    assert page.locator("#error img").count() == 0
    page.goto(f"{served}/#damaged")
    settled(page)
    assert "the link is damaged" in page.locator("#error").inner_text()
    assert page.locator(".card").count() == 5
    assert page.title() == "cbert: what is missing?"


def test_a_phone_needs_no_sideways_scrolling(page, served):
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(served)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter(one => "
        "!(one.ariaLabel || one.labels?.length || one.textContent.trim())).length"
    )
    assert unnamed == 0


NAMES_OF_PROTOTYPES = ("constructor", "__proto__", "toString")


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """A server of legal data with names that objects of JavaScript have, and one number."""
    folder = tmp_path_factory.mktemp("strange")
    names = [f"{name} {name}, a, b, c, {n}" for n in range(2) for name in NAMES_OF_PROTOTYPES]
    rows = [
        {
            "items": [names[n % 6], names[(n + 1 + n // 6) % 6]],
            "context": {
                **({"weight": 1e17} if n % 3 else {}),
                **dict.fromkeys(NAMES_OF_PROTOTYPES, "xy"[n % 2]),
            },
        }
        for n in range(90)
        if (n + 1 + n // 6) % 6 != n % 6
    ]
    (folder / "strange.jsonl").write_text(lines(*rows))
    data = f"--data_dir={folder}/data"
    run("prepare", f"--input={folder}/strange.jsonl", "--name=strange", data)
    sizes = ("dimension=16", "heads=2", "layers=1", "feed_forward=16")
    run(
        *("train", "--config=configs/base.py:gsu", f"--workdir={folder}/run"),
        *(f"--config.data.dir={folder}/data", "--config.data.name=strange"),
        *("--config.train.steps=1", "--config.train.batch_size=8"),
        *(f"--config.model.{size}" for size in sizes),
    )
    with serving(f"--workdir={folder}/run") as (_, address):
        yield address


def test_names_that_every_object_has_are_names_like_others(browser, strange):
    with watched(browser, strange) as page:
        page.goto(strange)
        settled(page)
        slider = page.get_by_role("slider", name="weight")
        low, high = (float(slider.get_attribute(bound)) for bound in ("min", "max"))
        assert low < 1e17 < high
        page.goto(link(strange, items=["constructor constructor, a, b, c, 1"], context={}))
        settled(page)
        assert page.locator(".card .title").inner_text() == "constructor constructor"
        assert page.locator(".card svg text").text_content() == "C"
        for name in NAMES_OF_PROTOTYPES:
            control = page.get_by_label(name.replace("_", " "), exact=True)
            assert control.input_value() == ""
            control.select_option("y")
        settled(page)
        context = json.loads(urllib.parse.unquote(page.url.partition("#")[2]))["context"]
        assert context == dict.fromkeys(NAMES_OF_PROTOTYPES, "y")
        assert page.locator("#error").is_hidden()
        page.reload()
        settled(page)
        assert page.get_by_label("constructor", exact=True).input_value() == "y"
