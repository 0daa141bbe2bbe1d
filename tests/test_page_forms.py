"""What the page's search, its sliders and its first text offer."""

import math

import hypothesis
import hypothesis.strategies as st
import pytest

from cbert.inference.text_queries import TextQuery
from cbert.schema import Numerical, Schema
from cbert.serving import page_data, text_page_data
from tests.text_predictors import assemble


def test_names_that_begin_with_the_query_come_first():
    schema = Schema("set", 4, ("red hat", "hat", "hot", "straw hat"), (5, 1, 9, 7), ())
    matches = page_data.Names(schema).search("HAT", 10)
    assert [item.name for item in matches.items] == ["hat", "straw hat", "red hat"]
    assert page_data.Names(schema).search("", 1).model_dump() == {
        "items": [{"name": "hot", "count": 9}],
        "total": 4,
    }


@pytest.mark.parametrize(
    ("mean", "scale", "edges", "wanted"),
    [
        (70.0, 20.0, (40.0, 60.0, 75.0), (30, 110, 2, 70)),
        (0.0, 1.0, (), (-2, 2, 0.1, 0)),
        (-2.0, 1.0, (0.0,), (-4, 0, 0.1, -2)),
        (0.5, 0.5, (1.0,), (0, 1.5, 0.05, 0.5)),
        (-3e-6, 1e-6, (-4e-6,), (-5e-6, -1e-6, 1e-7, -3e-6)),
        (1e17, 1.0, (1e17,), (1e17 - 5e10, 1e17 + 5e10, 2e9, 1e17)),
    ],
)
def test_sliders(mean, scale, edges, wanted):
    slider = Numerical("x", 4, mean, scale, edges).slider()
    assert tuple(slider.values()) == pytest.approx(wanted, rel=1e-9)


@hypothesis.given(
    st.floats(-3e38, 3e38), st.floats(1e-30, 1e38), st.lists(st.floats(-3e38, 3e38), max_size=3)
)
def test_every_slider_is_a_range(mean, scale, edges):
    form = Numerical("x", 4, mean, scale, tuple(sorted(edges))).form()
    assert all(math.isfinite(form[name]) for name in ("low", "high", "step", "middle"))
    assert form["low"] < form["high"]
    assert 0 < form["step"] <= form["high"] - form["low"]


@pytest.mark.parametrize("max_length", [8, 12, 64])
@pytest.mark.parametrize("task", ["masked_language", "span", "tagging"])
def test_the_example_of_the_page_is_not_cut(task, max_length):
    """What a page shows first is all read, and begins as the longest example does."""
    predictor = assemble(task, max_length=max_length)
    example = text_page_data.example(predictor)
    query = TextQuery(example.text, example.context, example.text_b)
    tokens = predictor.check(query, predicted=False).tokens
    assert not tokens.cut
    whole = text_page_data.example(assemble(task, max_length=64))
    for given, longest in ((example.text, whole.text), (example.text_b, whole.text_b)):
        words = (given or "").split()
        assert words == (longest or "").split()[: len(words)]
    assert len(tokens) >= min(max_length, 12) - 1
    assert (example == whole) == (max_length == 64)
