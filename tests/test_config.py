"""What is said of the config's fields."""

import re

from cbert import config as config_lib
from configs import base
from tests.conftest import ROOT, small


def test_the_page_of_fields_has_every_field_and_its_default():
    page = (ROOT / "docs" / "config.md").read_text()
    said = {}
    for names, defaults in re.findall(r"^\| (`[a-z].*?`) \| (.*?) \|", page, re.M):
        for name, default in zip(names.split(", "), defaults.split(", "), strict=True):
            said[name.strip("`")] = default.strip("`").replace(" ", "")
    fields = config_lib.flat(base.get_config().to_dict())
    assert said == {name: str(value).lower() or '""' for name, value in fields.items()}


def test_both_names_of_a_method_are_one_config():
    short, long = small("gs"), small("global_state")
    assert config_lib.differences(short, long) == []
    assert config_lib.differences(short, small("gsu")) == ["model.method (gs there, gsu here)"]
