"""The public Python interface: its page, its names, records in memory, callbacks."""

import dataclasses
import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

import cbert
from cbert import progress, tasks
from cbert.data import in_python
from cbert.data import prepared as prepared_lib
from cbert.training import config as config_lib
from tests import interface
from tests.conftest import ROOT, small
from tests.test_training import flat, restored

PAGE = ROOT / "docs" / "library.md"


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_page_runs_and_its_loop_equals_training(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 9
    loop = next(block for block in blocks if "cbert.build" in block)
    assert len(loop.splitlines()) < 20
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(tasks.TASKS, "focal", tasks.TASKS["tagging"])  # The page sets another.
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    trained = rows(tmp_path / "runs/watched/metrics.jsonl")
    validated = [row["cross_entropy"] for row in trained if row["split"] == "validation"]
    assert names["value"] == pytest.approx(validated[-1], abs=1e-5)
    metrics, summary = names["evaluation"].metrics, names["evaluation"].summary
    written = json.loads((tmp_path / "runs/own/eval/test.json").read_text())
    assert summary["results"] == written["results"]
    queries = names["evaluation"].queries
    expected = -queries["log_probability"].mean()
    assert metrics.loc["model", "cross_entropy"] == pytest.approx(expected, abs=1e-6)
    expected = -queries["popularity_log_probability"].mean()
    assert metrics.loc["popularity", "cross_entropy"] == pytest.approx(expected, abs=1e-6)
    assert "validation cross-entropy" in capsys.readouterr().out


def test_public_names_and_signatures_change_on_purpose_only():
    known = (ROOT / "tests" / "data" / "interface.txt").read_text()
    assert interface.text() == known, "python -m tests.interface > tests/data/interface.txt"
    assert set(cbert.__all__) <= set(dir(cbert))
    page = PAGE.read_text()
    for name in cbert.__all__:
        assert re.search(rf"\b{name}\b", page), f"{name} is not in docs/library.md"


def test_the_import_takes_nothing_along():
    code = "import cbert, sys; print(sorted({'jax', 'flax', 'numpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_loading_a_run_says_nothing(trained):
    code = f"import cbert; print(cbert.load({str(trained)!r}).step)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip().isdecimal()
    assert done.stderr == ""


def test_a_data_frame_gives_the_records_of_its_rows():
    mappings = [
        {
            "id": "one",
            "items": ["a", "b"],
            "context": {"age": 3.5, "tags": ["x"], "town": "Bonn"},
        },
        {"id": "two", "items": ["c"]},
    ]
    frame = pandas.DataFrame(
        {
            "id": ["one", "two"],
            "items": [["a", "b"], np.array(["c"], object)],
            "age": [3.5, np.nan],
            "tags": [["x"], None],
            "town": ["Bonn", None],
        }
    )
    assert list(in_python.read(frame, "set")) == list(in_python.read(mappings, "set"))
    numpy = [{"items": np.array(["a"]), "context": {"n": np.int64(3), "v": np.ones(2)}}]
    (record,) = in_python.read(numpy, "set")
    assert record.items == ["a"]
    assert record.context == {"n": 3, "v": [1.0, 1.0]}
    assert type(record.context["n"]) is int
    bought = pandas.DataFrame({"items": [["a"]], "bought": [[8, 9]]})
    (record,) = in_python.read(bought, "set", {"bought": "history"})
    assert record.context == {"bought": ["8", "9"]}


def test_times_of_numpy_and_pandas_are_text():
    """Nanoseconds since 1970 would be a numerical feature without a word."""
    day = np.datetime64("2024-05-01T00:00", "ns")
    given = [{"items": ["a"], "context": {"day": day, "days": np.array([day, day])}}]
    (record,) = in_python.read(given, "set")
    text = "2024-05-01T00:00:00.000000000"
    assert record.context == {"day": text, "days": [text, text]}
    months = pandas.PeriodIndex(["2024-05", None], freq="M")
    frame = pandas.DataFrame({"items": [["a"], ["b"]], "month": months})
    contexts = [record.context for record in in_python.read(frame, "set")]
    assert contexts == [{"month": "2024-05"}, {}]


def test_dropped_features_may_have_any_values(tmp_path):
    """There is no other way past a column that cannot be a feature."""
    rows = [
        {"items": ["a", "b"], "context": {"age": n, "bad": [{}, "x", 1][n % 3]}}
        for n in range(60)
    ]
    with pytest.raises(cbert.UserError, match="record 1: context 'bad' is"):
        cbert.prepare(rows, "mine", tmp_path)
    options = cbert.PrepareOptions(drop=("bad",))
    prepared = cbert.prepare(rows, "mine", tmp_path, options)
    assert list(prepared.summary["features"]) == ["age"]


def test_numbers_of_a_data_frame_are_names_where_the_kind_says_so(tmp_path):
    frame = pandas.DataFrame(
        {
            "items": [["a", "b"], ["b", "c"], ["a", "c"]] * 20,
            "group": [float(n) if n % 7 else None for n in range(60)],
            "zip": [10115.0, None, 20095.0] * 20,
        }
    )
    options = cbert.PrepareOptions(kinds={"zip": "categorical"})
    prepared = cbert.prepare(frame, "mine", tmp_path, options)
    (feature,) = prepared_lib.load_schema(tmp_path, "mine").features
    assert (feature.kind, sorted(feature.values)) == ("categorical", ["10115", "20095"])
    assert prepared.summary["features"]["zip"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"items": ["a"]}, {"items": ["b", "b"]}], "record 2: item 'b' occurs twice"),
        ([], "there are no records"),
        ({"items": ["a"]}, "the records are .*; give a list of mappings"),
        (5, "the records are 5; give a list of mappings"),
        (pandas.DataFrame({"item": [["a"]]}), "the DataFrame: no column 'items', only 'item'"),
        (pandas.DataFrame({"items": [["a"], 3]}), "the DataFrame has mixed types in a column"),
        (pandas.DataFrame({"items": [["a"]], "n": [2**70]}), "the DataFrame is not readable"),
        (
            pandas.DataFrame({"items": [["a"]], "n": pandas.arrays.SparseArray([1])}),
            "the DataFrame is not readable .*[sS]parse",
        ),
        ([{"items": ["a"], "context": {1: "x"}}], "record 1: the name of a .* is 1; use a str"),
        ([{"items": ["a"], "group": "g\0"}], "record 1: 'group' is .* with a NUL character"),
    ],
)
def test_records_that_are_refused(records, message, tmp_path):
    with pytest.raises(cbert.UserError, match=message):
        cbert.prepare(records, "mine", tmp_path)
    assert not (tmp_path / "mine" / "1.0.0").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"longer": "subsmaple"}, "longer is 'subsmaple'; it must be one of leave_out, subs"),
        ({"kind": "bag"}, "kind is 'bag'"),
        ({"drop": "age"}, "drop is 'age'; give a list of names"),
        ({"kinds": {"age": "histroy"}}, "the kind of 'age' is 'histroy'"),
        ({"min_count": "2"}, "min_count is '2'"),
        ({"max_items": 0}, "max_items is 0"),
        ({"widths": {"age": "8"}}, "the width of 'age' is '8'"),
        ({"split_weights": ("80", "10", "10")}, "split_weights is 80,10,10"),
        ({"text": cbert.TextOptions(pack=True)}, "pack, pairs and stride are for texts"),
        (
            {"kind": "text", "text": cbert.TextOptions(stride=-1)},
            "stride is -1; it must be at least",
        ),
        (
            {"kind": "text", "text": cbert.TextOptions(pairs="nxt")},
            "pairs is 'nxt'; it must be 'nex",
        ),
    ],
)
def test_options_that_are_refused(options, message, tmp_path):
    with pytest.raises(cbert.UserError, match=message):
        cbert.prepare([{"items": ["a"]}], "mine", tmp_path, cbert.PrepareOptions(**options))
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: cbert.prepare([], 5, path), "name is 5; give a string"),
        (lambda path: cbert.prepare([], "a", path, {}), "options is {}; give PrepareOptions"),
        (lambda path: cbert.train(small(), path, print), "callbacks is .*; give Callbacks"),
        (lambda _: cbert.Callbacks(step=5), "the callback step is 5; give a function"),
        (
            lambda path: cbert.evaluate(path, masking="both"),
            "masking is 'both'; it must be each",
        ),
    ],
)
def test_arguments_of_another_type_are_refused(call, message, trained, tmp_path):
    with pytest.raises(cbert.UserError, match=message):
        call(trained if "masking" in message else tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_step_is_evaluated_by_its_number(trained):
    step = cbert.load(trained).step
    result = cbert.evaluate(trained, "validation", step, write=False)
    best = cbert.evaluate(trained, "validation", write=False)
    assert result.metrics.equals(best.metrics)


def test_a_state_is_saved_once(data_dir, tmp_path):
    experiment = cbert.build(small("none", data__dir=data_dir, model__layers=1))
    state = dataclasses.replace(experiment.state, step=experiment.state.step + 3)
    for value in (float("nan"), "x", None):
        with pytest.raises(cbert.UserError, match="give the metric's, a finite number"):
            experiment.save(tmp_path / "run", state, value)
    assert not (tmp_path / "run").exists()
    experiment.save(tmp_path / "run", state, np.float32(2))
    other = dataclasses.replace(state, params=jax.tree.map(jnp.zeros_like, state.params))
    with pytest.raises(
        cbert.UserError, match="run has a checkpoint of step 3; save into a new"
    ):
        experiment.save(tmp_path / "run", other, 1.0)
    kept = restored(experiment.config, tmp_path / "run")[1]
    for name, value in flat(state.params).items():
        np.testing.assert_array_equal(kept[name], value)


def test_configs_are_read_and_overridden(trained):
    nested = cbert.read_config("configs/base.py:gs", {"train": {"steps": 7}, "model.heads": 4})
    assert (nested.model.method, nested.train.steps, nested.model.heads) == ("gs", 7, 4)
    assert cbert.read_config("configs/base.py", {"model.dropout": 0}).model.dropout == 0.0
    of_run = cbert.read_config(trained, {"seed": 5})
    assert config_lib.differences(config_lib.load(trained), of_run) == [
        "seed (0 there, 5 here)"
    ]
    for overrides, message in (
        ({"train.step": 5}, "there is no field 'train.step'; did you mean train.steps"),
        ({"train": {"steps": 0}}, "train.steps is 0; it must be at least 1"),
        ({"model.method": "gsx"}, "model.method is 'gsx'; it must be one of"),
    ):
        with pytest.raises(cbert.UserError, match=re.escape(message)):
            cbert.read_config("configs/base.py:gs", overrides)
    with pytest.raises(cbert.UserError, match=r"method is 'gss'; did you mean gs"):
        cbert.read_config("configs/base.py:gss")


@pytest.mark.soak
def test_callbacks_are_called_and_can_end_a_run_that_goes_on(data_dir, tmp_path):
    seen = []

    def note(name, ends=False):
        def call(event):
            seen.append((name, event.step, int(event.state.step), sorted(event.metrics)[:1]))
            return ends

        return call

    config = small("none", data__dir=data_dir, model__layers=1)
    ends = cbert.Callbacks(note("step"), note("validation", True), note("checkpoint"))
    result = cbert.train(config, tmp_path / "run", ends)
    assert not result.finished
    assert [entry[:3] for entry in seen] == [
        ("step", 1, 1),
        ("step", 2, 2),
        ("checkpoint", 2, 2),
        ("step", 3, 3),
        ("validation", 3, 3),
        ("checkpoint", 3, 3),
    ]
    assert seen[-2][3] == ["cross_entropy"]
    result = cbert.train(config, tmp_path / "run")
    assert result.finished
    assert [row["step"] for row in rows(tmp_path / "run" / "metrics.jsonl")] == [2, 3, 4, 6, 6]
    assert result.best_step in (3, 6)
    with pytest.raises(ZeroDivisionError):
        cbert.train(config, tmp_path / "other", cbert.Callbacks(step=lambda event: 1 / 0))


def test_bars_are_shown_in_a_notebook(monkeypatch):
    assert progress.bar(range(2)).disable

    class Kernel:
        config = {"IPKernelApp": {}}  # noqa: RUF012

        @classmethod
        def get_ipython(cls):
            return cls

    monkeypatch.setitem(sys.modules, "IPython", Kernel)
    assert not progress.bar(range(2)).disable
