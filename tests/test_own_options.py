"""Runs made while somebody's own file was registered, and read without it or by another."""

import json
import re

import pytest

import cbert
from cbert.errors import UserError
from cbert.training import config as config_lib
from cbert.training import config_file
from tests.conftest import ROOT, refused, run

PAGE = (ROOT / "docs" / "methods.md").read_text().split("## A method of your own")[1]
# The method of the page, `bounded_shift`, whose section has the option `bound`.
METHOD = PAGE.split("```python\n")[1].split("```")[0]

SWEEP = ("--methods=gs", "--nofeature_importance")


def arguments(data_dir, workdir, *more: str) -> tuple[str, ...]:
    """The arguments of a run or a sweep of one small baseline, for a few steps."""
    sizes = {"dimension": 16, "heads": 2, "layers": 1, "feed_forward": 16}
    train = {"batch_size": 32, "steps": 4, "eval_every": 4, "checkpoint_every": 2}
    return (
        *("--config=configs/base.py:gs", f"--workdir={workdir}"),
        *(f"--config.data.dir={data_dir}", "--config.data.name=small"),
        *(f"--config.model.{name}={value}" for name, value in sizes.items()),
        *(f"--config.train.{name}={value}" for name, value in train.items()),
        *("--config.train.length_buckets=1", "--config.optimizer.warmup_steps=1", *more),
    )


@pytest.fixture(scope="module")
def swept(data_dir, tmp_path_factory):
    """The directory of a sweep that knew a method, and the config of a run of that."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "shift.py").write_text(METHOD)
    workdir, known = folder / "runs" / "gs-seed0", {"CBERT_METHODS": str(folder / "shift.py")}
    run("train", *arguments(data_dir, workdir), **known)
    run("evaluate", f"--workdir={workdir}", **known)
    written = json.loads((workdir / "config.json").read_text())
    written["model"]["method"] = "bounded_shift"
    (folder / "runs" / "bounded_shift-seed0").mkdir()
    (folder / "runs" / "bounded_shift-seed0" / "config.json").write_text(json.dumps(written))
    return folder / "runs"


def test_a_baseline_of_the_sweep_is_read_without_the_file(swept):
    written = json.loads((swept / "gs-seed0" / "config.json").read_text())
    assert written["model"]["bounded_shift"] == {"bound": 1.0}
    done = run("evaluate", f"--workdir={swept}/gs-seed0", "--masking=one")
    assert re.search(r"^gs +\d", done.stdout, re.MULTILINE)
    loaded = config_lib.load(swept / "gs-seed0")
    assert "bounded_shift" not in loaded.model
    assert cbert.load(swept / "gs-seed0", batch_sizes=(1,)).method == "gs"
    error = refused("evaluate", f"--workdir={swept}/bounded_shift-seed0")
    assert "model.method is 'bounded_shift', which no file has registered; if it is" in error


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("bound", "limit"),  # Its name is another one,
        # or its bounds and its default.
        pytest.param("above=0)", "above=2)", marks=pytest.mark.soak),
    ],
)
def test_a_baseline_goes_on_where_an_option_has_changed(data_dir, swept, text, changed):
    file = swept.parent / f"changed_{len(changed)}.py"
    file.write_text(METHOD.replace(text, changed).replace("limited_shift", "bounded_shift"))
    if changed == "above=2)":
        file.write_text(file.read_text().replace("field(1.0,", "field(3.0,"))
    known = {"CBERT_METHODS": str(file)}
    done = run("sweep", *arguments(data_dir, swept, *SWEEP, "--dry_run"), **known)
    assert re.search(r"gs-seed0 +finished", done.stdout)
    run("evaluate", f"--workdir={swept}/gs-seed0", "--masking=one", **known)
    if changed == "limit":
        line = run(
            "evaluate", f"--workdir={swept}/bounded_shift-seed0", check=2, **known
        ).stderr
        assert "config.json: model.bounded_shift.bound is no option of 'bounded_shift'" in line
        assert "or name it in CBERT_METHODS for commands" in line


def test_an_option_of_another_method_does_not_make_another_run(data_dir, swept):
    done = run(
        "sweep",
        *arguments(data_dir, swept, "--config.model.gsu.update_norm=none", *SWEEP),
        "--dry_run",
    )
    assert re.search(r"gs-seed0 +finished", done.stdout)
    line = refused("sweep", *arguments(data_dir, swept, "--config.model.dropout=0.3", *SWEEP))
    assert "another config: model.dropout (0.1 there, 0.3 here); use" in line


def test_options_of_a_task_that_is_not_known_are_left_out_too(swept, tmp_path):
    values = json.loads((swept / "gs-seed0" / "config.json").read_text())
    values["task"]["mine"] = {"rate": 3}
    values["model"]["film"] = {"rank": "low"}  # It has no such option.
    (tmp_path / "config.json").write_text(json.dumps(values))
    loaded = config_lib.load(tmp_path)
    assert "mine" not in loaded.task
    assert config_lib.differences(loaded, config_lib.load(swept / "gs-seed0")) == []
    values["model"]["gs"]["rank"] = 3
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(cbert.UserError, match=r"there is no field 'model\.gs\.rank'; did you"):
        config_lib.load(tmp_path)


@pytest.mark.parametrize("own", ["from . import parts\n", "from .parts import Shift\n"])
@pytest.mark.parametrize("name", ["__init__.py", "shift.py"])
def test_a_relative_import_is_refused_by_what_it_is(tmp_path, own, name):
    (tmp_path / name).write_text("\n" + own)
    (tmp_path / "parts.py").write_text("Shift = 1\n")
    with pytest.raises(UserError) as error:
        config_file.load_module(str(tmp_path / name))
    assert str(error.value) == (
        f"{tmp_path}/{name}:2: a relative import, and the file is run on its own; import its "
        "package by name, which PYTHONPATH or an installation makes known"
    )


def test_an_error_in_a_package_that_the_file_imports_names_its_place(tmp_path, monkeypatch):
    """One in a library, which is no user's, does not."""
    monkeypatch.syspath_prepend(tmp_path)
    parts, file = tmp_path / "parts_of_mine.py", tmp_path / "mine.py"
    parts.write_text("\n\nx = unknown\n")
    for text, message in (
        ("import parts_of_mine", f"NameError: name 'unknown' is not defined ({parts}:3)"),
        ("import json; json.loads('{')", "JSONDecodeError: Expecting property name enclosed"),
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
    ):
        file.write_text(text)
        with pytest.raises(UserError) as error:
            config_file.load_module(str(file))
        assert str(error.value).startswith(f"{file}:1: {message}")
        assert (".py:" in str(error.value).removeprefix(f"{file}:")) == ("parts" in text)
