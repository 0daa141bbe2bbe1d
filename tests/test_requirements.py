"""Every installation is the same, because the version of every package is pinned."""

import importlib.metadata
import re

from packaging.requirements import Requirement

from tests.conftest import ROOT


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(name: str, extra: str) -> list[tuple[str, str]]:
    """The packages and extras that an installed package asks for on this machine."""
    needed = []
    for text in importlib.metadata.distribution(name).requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            extras = ("", *requirement.extras)
            needed += [(normalised(requirement.name), extra) for extra in extras]
    return needed


def test_all_that_is_installed_is_pinned():
    pinned = set()
    for path in (ROOT / "requirements.txt", ROOT / "tests" / "requirements.txt"):
        lines = path.read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins), path
        pinned |= {normalised(pin.split("==")[0]) for pin in pins}
    waiting, reached = [(name, "") for name in pinned], set()
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += needed_by(*one)
    assert {name for name, _ in reached} == pinned
