"""docs/methods.md has a section, a drawing and the right numbers for each method."""

import re
import runpy

import pytest

from cbert.data.synthetic import stylist
from cbert.model import cost
from cbert.model.conditioning import NAMES, PAPER
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from tests.conftest import ROOT, some
from tests.models import build

PAGE = (ROOT / "docs" / "methods.md").read_text()


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
