"""Names of methods and tasks: which are taken, and what may have one."""

import re

import pytest

from cbert import tasks
from cbert.errors import UserError
from cbert.model import conditioning
from cbert.tasks.masked_item import MaskedItem
from tests.conftest import ROOT, run
from tests.outside_methods import METHODS

NAME = "scaled_input"


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The method of `tests/outside_methods.py` is known in these tests alone."""
    monkeypatch.setattr(conditioning.METHODS, "data", {**conditioning.METHODS, **METHODS})


class Another(conditioning.GlobalState):
    """A method that is none of cbert's, whatever its name."""


@pytest.mark.parametrize(
    ("known", "name", "value", "message"),
    [
        (conditioning.METHODS, "gs", Another, "'gs' is a method of cbert; take another name"),
        (tasks.TASKS, "span", MaskedItem, "'span' is a task of cbert; take another name"),
        (
            conditioning.METHODS,
            NAME,
            Another,
            f"'{NAME}' is a method already, ScaledInput; take another name",
        ),
        (
            conditioning.METHODS,
            "mine",
            MaskedItem,
            f"the method 'mine' is {MaskedItem!r}; give a subclass of Method",
        ),
        (tasks.TASKS, "mine", 3, "the task 'mine' is 3; give a subclass of Task"),
        (
            conditioning.METHODS,
            "dropout",
            Another,
            "the method 'dropout' has the name of a config field beside its section; take "
            "another name",
        ),
        (
            tasks.TASKS,
            "a,b",
            MaskedItem,
            "a task is called 'a,b'; use letters, digits, _ and - alone",
        ),
        (
            conditioning.METHODS,
            5,
            Another,
            "a method is called 5; use letters, digits, _ and - alone",
        ),
    ],
)
def test_names_that_are_taken_and_other_classes_are_refused(known, name, value, message):
    before = dict(known)
    for register in (known.__setitem__, lambda *pair: known.update([pair])):
        with pytest.raises(UserError) as refusal:
            register(name, value)
        assert str(refusal.value) == message
    with pytest.raises(UserError, match=re.escape(message)):
        known |= {name: value}
    assert known == before


def test_a_file_that_replaces_a_method_of_cbert_is_refused(tmp_path):
    file = tmp_path / "own.py"
    text = (ROOT / "tests" / "outside_methods.py").read_text()
    file.write_text(f"{text}\nfrom cbert.model import conditioning\n")
    file.write_text(f'{file.read_text()}conditioning.METHODS["gs"] = ScaledInput\n')
    done = run("describe", "--config=configs/base.py:gs", check=2, CBERT_METHODS=str(file))
    assert done.stderr == f"error: {file}: 'gs' is a method of cbert; take another name\n"


def test_a_class_may_be_registered_again():
    """A file that is imported twice has a class of its own each time."""
    again = type("ScaledInput", (METHODS[NAME],), {"__module__": "config_file"})
    conditioning.METHODS[NAME] = again
    assert conditioning.METHODS[NAME] is again
    conditioning.METHODS["gs"] = conditioning.GlobalState
