"""A run's directory: what it says of the run as that goes on."""

import json

import pytest

import cbert
from cbert.data import prepared
from cbert.evaluation import data_warnings
from cbert.training import loop, own_data, workdir
from tests.conftest import small


def test_a_run_that_goes_on_says_where_its_data_have_moved(schema, tmp_path):
    """Evaluations and the diagnosis of a run look there."""
    workdir.initialise_workdir(small(data__dir="before"), schema, tmp_path)
    path = tmp_path / workdir.CONFIG
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"model": written["model"] | {"later": {"a": 1}}}))
    moved = small(data__dir="after", train__log_every=7)
    workdir.initialise_workdir(moved, schema, tmp_path)
    assert workdir.read(tmp_path)[0].data.dir == "after"
    kept = json.loads(path.read_text())
    assert kept["data"] == {**written["data"], "dir": "after"}
    assert kept["model"] == {**written["model"], "later": {"a": 1}}
    assert kept["train"]["log_every"] == written["train"]["log_every"] != 7


def test_a_run_notes_the_sizes_of_its_data(trained):
    config, schema = workdir.read(trained)
    noted = json.loads((trained / workdir.DATA).read_text())
    place = config.data.dir, config.data.name
    assert noted == prepared.sizes(*place)
    for split, size in noted.items():
        assert size["examples"] == len(prepared.load(*place, split, schema))
        assert size["bytes"] > size["examples"]


def prepare(data_dir, count, schema=None, last="b"):
    """Records of which every tenth one is held out; the first has an item of its own."""
    splits = ["train"] * 8 + ["validation", "test"]
    records = [
        {"items": ["a", last if n == 0 else "b"], "split": splits[n % 10]} for n in range(count)
    ]
    options = cbert.PrepareOptions(overwrite=schema is not None)
    cbert.prepare(records, "mine", data_dir, options, schema)


@pytest.mark.parametrize(
    ("count", "last", "change"),
    [
        (60, "b", "with 48 examples in train in place of 80"),
        (100, "long", "with other examples in train"),
        (100, "b", ""),
    ],
)
def test_other_data_with_the_name_and_schema_are_noticed(tmp_path, capsys, count, last, change):
    config = small("none", data__dir=str(tmp_path / "data"), data__name="mine")
    run = tmp_path / "run"
    prepare(tmp_path / "data", 100)
    schema = prepared.load_schema(config.data.dir, "mine")
    run.mkdir()
    own_data.note(config, run)
    workdir.initialise_workdir(config, schema, run)
    own_data.check(config, run)
    prepare(tmp_path / "data", count, tmp_path / "run" / "schema.json", last)
    assert prepared.load_schema(config.data.dir, "mine") == schema
    capsys.readouterr()
    data_warnings.warn_if_prepared_anew(config.data.dir, "mine", schema, run)
    assert own_data.changed(config.data.dir, "mine", run) == change
    if change:
        assert f"the model learned from it, {change}; it may" in capsys.readouterr().err
        with pytest.raises(
            cbert.UserError, match=f"other data: 'mine' was prepared anew, {change}"
        ):
            loop.train(config, run)
    else:
        assert capsys.readouterr().err == ""
        own_data.check(config, run)
    (run / workdir.DATA).unlink()
    assert own_data.changed(config.data.dir, "mine", run) == ""
