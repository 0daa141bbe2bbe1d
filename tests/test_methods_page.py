"""docs/methods.md has a section, a drawing and the right numbers for each method."""

import re
import runpy

import numpy as np
import pytest

import cbert
from cbert.data.synthetic import stylist
from cbert.model import conditioning, cost
from cbert.model.conditioning import HOOKS, NAMES, PAPER
from cbert.model.conditioning.method import Method
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from cbert.training import config as config_lib
from tests import test_benchmark
from tests.conftest import ROOT, some
from tests.models import build

PAGE = (ROOT / "docs" / "methods.md").read_text()
OWN = PAGE.split("## A method of your own")[1]


def test_each_method_has_a_section_and_the_drawing_that_the_script_makes():
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == [*NAMES]
    drawings = runpy.run_path(str(ROOT / "docs" / "methods" / "drawings.py"))
    assert [*drawings["DRAWINGS"]] == [*NAMES]
    for name in NAMES:
        assert f'<img src="methods/{name}.svg"' in PAGE
        written = (ROOT / "docs" / "methods" / f"{name}.svg").read_text()
        assert written == drawings["drawing"](name)


@pytest.mark.parametrize("method", some(NAMES, *PAPER))
def test_its_numbers(method):
    model = build(stylist.schema(30_000, []), method, ModelConfig())
    parameters, adds = (
        table_1_count(model),
        cost.multiply_adds(model, 5, 1) / 1e6,
    )
    assert f"| [{method}](#{method}) | {parameters:,} | {adds:.2f} | " in PAGE


def test_the_section_on_own_methods_has_all_that_one_may_override():
    of_flax = {"parent", "name", "scope"}
    for name in {*HOOKS, *vars(Method)} - of_flax:
        assert name.startswith("_") or re.search(rf"`(self\.)?{name}[`(]", OWN), name


@pytest.fixture(scope="module")
def page_ran(tmp_path_factory):
    """The names of the section's code, which asserts that its method begins as none."""
    contexts = [{"occasion": one, "age": age} for one in ("lunch", "tea") for age in (20, 60)]
    items, names = ["coffee", "bagel", "egg", "jam"], {}
    records = [
        {"group": str(i), "items": items[i % 2 :], "context": contexts[i % 4]}
        for i in range(200)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        # The page adds one.
        patch.setattr(conditioning.METHODS, "data", {**conditioning.METHODS})
        cbert.prepare(records, "mine")
        for block in re.findall(r"^```python\n(.*?)^```$", OWN, re.MULTILINE | re.DOTALL):
            exec(block, names)
        yield names


def test_the_method_of_the_page_costs_what_the_page_says(page_ran, monkeypatch):
    own, plain = (page_ran[name].task.model for name in ("own", "plain"))
    config, features = own.encoder.config, own.encoder.features
    added = (sum(feature.width for feature in features) + 1) * config.dimension
    assert table_1_count(own) - table_1_count(plain) == config.layers * added
    counted, traced = test_benchmark.operations("bounded_shift", monkeypatch)
    assert counted == traced


def test_the_method_of_the_page_has_an_option_and_starts_as_plain(page_ran):
    overrides = {"model.start_as_plain": True, "model.bounded_shift.bound": 2.0}
    config = cbert.read_config("data/mine/config.py:bounded_shift", overrides)
    model = config_lib.build_model(config, page_ran["own"].schema)
    assert model.encoder.options.bound == 2
    with pytest.raises(cbert.UserError, match="bound is 0; it must be above 0"):
        cbert.read_config("data/mine/config.py:bounded_shift", {"model.bounded_shift.bound": 0})


def test_what_the_page_checks_holds_of_a_shift_that_a_norm_follows(page_ran, monkeypatch):
    class Normed(page_ran["BoundedShift"]):
        after_attention = Method.after_attention

        def residual(self, layer, sublayer, x, y, state, add_and_norm):
            return add_and_norm(x, super().after_attention(layer, y, None, state))

    monkeypatch.setitem(conditioning.METHODS, "normed", Normed)
    block = OWN.split("import cbert\n")[1].split("```")[0]
    names = {"cbert": cbert}
    exec(block.replace(":bounded_shift", ":normed"), names)
    assert names["own"].config.model.method == "normed"
    assert abs(names["one"] - names["other"]) > 1e-5


def test_what_the_page_sows_is_attention_and_hidden_states(page_ran):
    maps, states = page_ran["maps"], page_ran["states"]
    config, items = page_ran["own"].config.model, page_ran["inputs"][0]
    (count, length), blocks = items.shape, config.layers
    assert [one.shape for one in maps] == [(count, config.heads, length, length)] * blocks
    assert [one.shape for one in states] == [(count, length, config.dimension)] * (blocks + 1)
    for one in maps:
        sums = np.asarray(one).sum(-1)
        np.testing.assert_allclose(sums, 1, atol=1e-5)
        hidden = np.asarray(one) * (np.asarray(items) < 0)[:, None, None]
        assert hidden.max() == 0
