"""What the page shows of each task of texts, in a real browser."""

import pytest

from tests.conftest import serving, some
from tests.test_page import browser, link, watched  # noqa: F401
from tests.test_text_serving import CONTEXT, assemble, workdir  # noqa: F401


def shown_as(page, task, result):
    """Asserts that the page shows a result."""
    rows = page.locator(".prediction")
    if task in ("classification", "multi_label"):
        names = [one.label for one in result.labels]
        assert (
            rows.locator(".title").evaluate_all(
                "titles => titles.map(title => title.firstChild.data)"
            )
            == names
        )
        holding = rows.locator(".badge:visible").count()
        assert holding == len(result.above_half if task == "multi_label" else [])
    elif task == "regression":
        shown = page.locator(".figure").inner_text().replace(",", "")
        assert float(shown) == pytest.approx(result.number, abs=0.01)
    elif task == "span":
        assert page.locator("mark").count() == (result.answer is not None)
        likeliest = {one.text: one.probability for one in reversed(result.spans)}
        likeliest["no answer"] = result.no_answer
        assert rows.locator(".title").all_inner_texts() == sorted(
            likeliest, key=lambda name: -likeliest[name]
        )
    else:
        marks = page.locator("mark").all_inner_texts()
        assert len(marks) == len(result.spans)
        assert all(map(str.startswith, marks, [one.text for one in result.spans]))
        titles = page.locator(".marked span[title]")
        assert titles.evaluate_all("all => all.map(one => one.title.split(' ')[0])") == [
            one.tag for one in result.words
        ]


@pytest.mark.parametrize(
    "task", some(("tagging", "classification", "multi_label", "regression", "span"))
)
def test_each_task_is_shown(browser, workdir, task):  # noqa: F811
    text = "please \U0001f600 7 table red ? blue 8"
    flags = (f"--workdir={workdir(task)}", "--checkpoint=last")
    with serving(*flags) as (_, address), watched(browser, address) as page:
        page.goto(link(address, text=text, context=CONTEXT))
        page.locator("body[data-state=settled]").wait_for()
        assert page.locator("#error").is_hidden()
        shown_as(page, task, assemble(task).predict(text, CONTEXT, k=8))  # As the page lists.
        assert page.locator("#bars li").count() == 2
        assert page.locator("#pair").is_hidden() == (task == "tagging")
        if task == "tagging":
            assert assemble(task).predict("blue").spans == []
            page.locator("#text").fill("blue")
            page.get_by_role("button", name="Nothing known").click()
            page.get_by_text("No word is part of a span.").wait_for()
