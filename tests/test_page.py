"""The page, in a real browser."""

import json
import shutil
import urllib.parse

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MARKUP = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: tests/requirements.txt"
    )
    if not BROWSER:
        pytest.skip("no browser found: apt-get install chromium")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


@pytest.fixture
def page(browser, served):
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
    assert [url for url in fetched if not url.startswith(served)] == []
    # The browser itself reports every refusal it is answered with.
    assert [text for text in complaints if "status of 400" not in text] == []


def settled(page):
    """Waits for the newest answer; returns the first panel's ranking as shown."""
    page.locator("body[data-state=answered]").wait_for()
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


def test_a_click_hides_a_card(page, served, schema):
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


def test_a_slider_changes_the_ranking_of_both_models(page, served, schema):
    page.goto(
        link(served, items=list(schema.items[:3]), context={"age": 20, "occasion": "work"})
    )
    before = settled(page)
    slider = page.get_by_role("slider", name="age")
    assert slider.input_value() == "20"
    slider.fill("68")
    after = settled(page)
    assert after != before
    assert page.locator("#feature-age").input_value() == "68"
    other = page.locator('[data-model="compare"] .prediction .probability').all_inner_texts()
    assert other == [probability for _, probability in after]
    effects = page.locator("#bars li .title").all_inner_texts()
    assert sorted(effects) == ["age", "occasion"]
    page.get_by_label("age is not known").check()
    assert settled(page) != after
    assert page.locator("#bars li .title").all_inner_texts() == ["occasion"]


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
