"""The parameter counts equal the paper's to the last digit, and follow formulae."""

import dataclasses
import math

import flax
import pytest

from cbert.data.synthetic import stylist
from cbert.model import conditioning, parameter_tree
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import is_in_table_1
from tests.conftest import run
from tests.models import build

PAPER = {"none": 546432, "c": 673664, "np": 640768, "gs": 723328, "gsu": 921856}
OPTIONS = {"reading", "state_norm", "update_norm"}
SCHEMA = stylist.schema(30_000, [])


def count(method: str, **choices) -> int:
    section = conditioning.method_class(method).Config
    names = {field.name for field in dataclasses.fields(section)} if section else set()
    own = {name: value for name, value in choices.items() if name in names}
    sizes = {name: value for name, value in choices.items() if name not in OPTIONS}
    model = build(SCHEMA, method, ModelConfig(**sizes), **own)
    shapes = parameter_tree.shapes(model)
    flat = flax.traverse_util.flatten_dict(shapes)
    return sum(math.prod(leaf.shape) for path, leaf in flat.items() if is_in_table_1(path))


def formula(method: str, d: int, n: int, f: int, c: int) -> int:
    def dense(a: int, b: int) -> int:
        return a * b + b

    block = 4 * dense(d, d) + 2 * 2 * d + dense(d, f) + dense(f, d)
    plain = n * block + dense(d, d)
    state = dense(c, d) + dense(d, d) + n * dense(d, d)
    update = dense(d, 2 * d) + dense(2 * d, d) + 2 * d
    return (
        plain
        + {
            "none": 0,
            "c": dense(c + d, d) + dense(d, d),
            "np": dense(c, d),
            "gs": state,
            "gsu": state + (n - 1) * update,
        }[method]
    )


@pytest.mark.parametrize("method", PAPER)
def test_counts_equal_the_paper(method):
    assert SCHEMA.context_width == 736
    assert count(method) == PAPER[method] == formula(method, 128, 4, 256, 736)


@pytest.mark.parametrize("method", PAPER)
def test_counts_follow_the_formula_at_another_size(method):
    parameters = count(method, dimension=48, layers=3, feed_forward=80, heads=4)
    assert parameters == formula(method, 48, 3, 80, 736)


@pytest.mark.parametrize("choices", [{"reading": "fnn"}, {"state_norm": "scale"}])
def test_open_choices_keep_the_counts(choices):
    assert {method: count(method, **choices) for method in PAPER} == PAPER


def test_without_the_update_norm_the_count_is_not_the_papers():
    assert count("gsu", update_norm="none") == PAPER["gsu"] - 3 * 256


def test_describe_prints_the_count_last_and_needs_no_data():
    done = run("describe", "--config=configs/base.py:gsu", "--articles=30000")
    assert done.stdout.splitlines()[-1] == (
        "parameters (without context embeddings and the last dense layer): 921856"
    )


def test_describe_counts_controls():
    named = "--methods=none,gs_constant,gs_wide,gsu"
    done = run("describe", "--config=configs/stylist.py:gsu", "--articles=30000", named)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    counts = {name: int(parameters) for name, parameters, _ in rows}
    assert [*counts] == ["none", "gs_constant", "gs_wide", "gsu"]
    # One more hidden unit in each of the four layers has two weights a dimension and a bias.
    unit = 4 * (2 * 128 + 1)
    assert counts["gs_constant"] == PAPER["gs"]
    assert PAPER["gsu"] <= counts["gs_wide"] < PAPER["gsu"] + unit
