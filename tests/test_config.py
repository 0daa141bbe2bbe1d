"""The declarations of config fields, and what is made from them."""

import dataclasses
import re

import ml_collections
import pytest

from cbert import config as declarations
from cbert.config import field, flat
from cbert.errors import UserError
from cbert.training import config as config_lib
from cbert.training.config_sections import sections
from tests.conftest import ROOT, run, small


@dataclasses.dataclass(frozen=True)
class Tank:
    """A tank of water."""

    litres: float = field(2.5, "its volume", above=0, at_most=10)
    fish: int = field(3, "how many live in it", at_least=0)
    lid: bool = field(True, "whether it is covered", changes_results=False)


@dataclasses.dataclass(frozen=True)
class Spring:
    """A section with a whole number for the default of a number."""

    depth: float = field(1, "how deep it is")


@dataclasses.dataclass(frozen=True)
class Light:
    """The tank's light."""

    colour: str = field("blue", "its colour", choices=lambda: ("blue", "red"))


SECTIONS = {"tank": Tank, "tank.light": Light}


class Bowl(Tank):
    """A class that is not decorated, whose own field would be lost."""

    depth: float = field(1.0, "how deep it is")


@dataclasses.dataclass
class Pond:
    """A section that may change."""

    depth: float = field(1.0, "how deep it is")


@dataclasses.dataclass(frozen=True)
class Lake:
    """A section with a usual field of a dataclass."""

    depth: float = 1.0


@dataclasses.dataclass(frozen=True)
class Sea:
    """A section with a field of a type that no flag can give."""

    depths: tuple[float, ...] = field((1.0,), "how deep it is")


@dataclasses.dataclass(frozen=True)
class Well:
    """A section whose own default is not allowed."""

    depth: float = field(1, "how deep it is", above=2)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (Bowl, "section Bowl is not a frozen dataclass; write @dataclasses.dataclass(frozen="),
        (Well, "section Well gives depth the default 1.0; it must be above 2"),
        (Pond, "section Pond is not a frozen dataclass; write @dataclasses.dataclass(frozen="),
        (Lake, "section Lake gives depth no meaning; write depth: TYPE = cbert.config.field("),
        (Sea, "section Sea declares depths as tuple[float, ...]; use one of int, float, str"),
    ],
)
def test_a_class_that_is_no_section_is_refused(section, message):
    with pytest.raises(UserError, match=re.escape(message)):
        declarations.default({"water": section})


def test_a_nested_section_becomes_defaults_and_comes_back():
    config = declarations.default(SECTIONS)
    assert config.to_dict() == {
        "tank": {"litres": 2.5, "fish": 3, "lid": True, "light": {"colour": "blue"}}
    }
    config.tank.light.colour, config.tank.fish = "red", 5
    declarations.check(config, SECTIONS)
    assert declarations.read(config, "tank", Tank) == Tank(2.5, 5, True)
    assert declarations.read(config, "tank.light", Light) == Light("red")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("litres", 0, "tank.litres is 0; it must be above 0 and at most 10"),
        ("litres", 10.5, "tank.litres is 10.5; it must be above 0 and at most 10"),
        (
            "litres",
            float("nan"),
            "tank.litres is nan; it must be a finite number above 0 and at most 10",
        ),
        ("litres", True, "tank.litres is True; it must be a number"),
        (
            "litres",
            10**400,
            f"tank.litres is 1{'0' * 25}...{'0' * 27}; it must be a finite number above 0 and",
        ),
        ("litres", [2.5], "tank.litres is [2.5]; it must be a number"),
        ("fish", 2.0, "tank.fish is 2.0; it must be a whole number"),
        ("fish", -1, "tank.fish is -1; it must be at least 0"),
        ("fish", 2**31, "tank.fish is 2147483648; it must be at most 2147483647"),
        ("lid", 1, "tank.lid is 1; it must be true or false"),
        ("light", {"colour": "green"}, "tank.light.colour is 'green'; it must be one of blue,"),
        (
            "light",
            {"color": "red"},
            "there is no field 'tank.light.color'; did you mean tank.light.colour?",
        ),
        ("light", {}, "tank.light.colour is missing"),
        ("fihs", 3, "there is no field 'tank.fihs'; did you mean tank.fish?"),
    ],
)
def test_an_impossible_value_is_one_line(name, value, message):
    values = declarations.default(SECTIONS).to_dict()
    values["tank"][name] = value
    with pytest.raises(UserError) as error:
        declarations.check(ml_collections.ConfigDict(values), SECTIONS)
    assert str(error.value).startswith(message)


def test_bounds_themselves_are_allowed():
    config = declarations.default(SECTIONS)
    config.tank.litres, config.tank.fish = 10.0, 0
    declarations.check(config, SECTIONS)
    tank = declarations.read(config, "tank", Tank)
    assert (tank.litres, tank.fish) == (10.0, 0)


def test_the_page_and_the_help_are_made_from_the_declarations():
    page = declarations.reference(SECTIONS)
    assert "| `tank.litres` | `2.5` | above 0 and at most 10 | its volume |\n" in page
    assert "| `tank.light.colour` | `blue` | one of blue, red | its colour |\n" in page
    assert "## `tank.light`\n\nThe tank's light.\n\n| field |" in page
    text = declarations.overrides_help(SECTIONS, "config").splitlines()
    assert text[2] == "--config.tank.lid=true: whether it is covered; true or false"
    fields = declarations.overrides_help(sections(), "config")
    assert "from disk (larger than memory); one of" in fields
    assert "](" not in fields


def test_the_page_of_fields_is_up_to_date():
    """`python -m experiments.describe --fields > docs/config.md` writes it."""
    assert run("describe", "--fields").stdout == (ROOT / "docs" / "config.md").read_text()


def test_fields_that_change_no_result_do_not_differ():
    one = small()
    other = small(data__dir="elsewhere", train__steps_per_dispatch=2, train__log_every=1)
    other.train.checkpoint_every = 1
    assert config_lib.differences(one, other) == []
    left_out = flat(one.to_dict()).keys() - config_lib.fields(one).keys()
    assert {"data.dir", "train.steps_per_dispatch"} <= left_out
    assert not left_out & {"seed", "train.steps", "data.name", "model.dimension"}
    other = small(train__init_from="runs/first")
    assert config_lib.differences(one, other) == ["train.init_from ('' there, runs/first here)"]


def test_a_number_takes_fractions_where_its_default_is_written_as_a_whole_one():
    config = declarations.default({"": Spring})
    config.depth = 2.5
    declarations.check(config, {"": Spring})
    assert declarations.default({"": Spring}).to_json() == '{"depth": 1.0}'
