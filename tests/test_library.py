"""The public Python interface: its page, its names, checkpoints, configs, callbacks."""

import json
import re
import subprocess
import sys
import types

import ml_collections
import numpy as np
import pytest

import cbert
from cbert import progress, tasks
from cbert.training import config as config_lib
from cbert.training import loop
from cbert.training.preemption import Stop
from tests import interface, text_predictors
from tests.conftest import ROOT, small

BASE = "configs/base.py"
PAGE = ROOT / "docs" / "library.md"


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_page_runs_and_its_loop_equals_training(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 13
    loop = next(block for block in blocks if "cbert.build" in block)
    assert len(loop.splitlines()) < 20
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tasks.TASKS, "data", {**tasks.TASKS})  # The page adds one.
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["added"].summary["examples"] == {"test": 1}
    assert names["added"].skipped[0].startswith("record 2: no 'items'")
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
    title, header, *_ = repr(names["evaluation"]).splitlines()
    assert title == f"EvaluationResult: metrics as below, {len(queries)} queries, summary"
    assert header.split()[0] == "cross_entropy"
    assert names["evaluation"]._repr_html_().startswith(f"<p>{title}</p><table")
    assert repr(names["predictor"]) == f"Predictor(gs, masked_item, step {summary['step']})"
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


def test_a_step_is_evaluated_by_its_number(trained):
    step = cbert.load(trained).step
    result = cbert.evaluate(trained, "validation", step, write=False)
    best = cbert.evaluate(trained, "validation", write=False)
    assert result.metrics.equals(best.metrics)


def test_runs_are_compared_query_by_query(trained, data_dir, tmp_path):
    other = tmp_path / "other"
    steps = {"train__steps": 4, "train__eval_every": 2, "train__checkpoint_every": 2}
    cbert.train(small("none", data__dir=data_dir, model__layers=1, **steps), other)
    table = cbert.compare([trained, other], "validation")
    base, own = (
        cbert.evaluate(run, "validation", write=False).queries for run in (trained, other)
    )
    assert list(table.index) == [str(trained), str(other)]
    assert table["cross_entropy"][str(trained)] == pytest.approx(
        -base["log_probability"].mean()
    )
    row = table.loc[str(other)]
    assert row["recall@5"] == pytest.approx((own["rank"] <= 5).mean())
    apart = base["log_probability"] - own["log_probability"]
    assert row["difference"] == pytest.approx(apart.mean())
    groups = apart.groupby(base["group"]).agg(["sum", "count"])
    residuals = groups["sum"] - row["difference"] * groups["count"]
    fractions = groups["count"] / len(apart)
    h = (fractions**2).sum()  # The factor of docs/sweeps.md for groups of other sizes.
    factor = h / (fractions**2 * (1 - 2 * fractions + h)).sum()
    variance = factor * (residuals**2).sum() / len(apart) ** 2
    assert row["standard_error"] == pytest.approx(variance**0.5)
    assert row["low"] < row["difference"] - 1.96 * row["standard_error"]
    assert row["high"] - row["difference"] == pytest.approx(row["difference"] - row["low"])
    assert table.loc[str(trained), ["difference", "low", "high"]].isna().all()
    assert not (other / "eval").exists()
    for wrong in ([trained], [trained, trained], []):
        with pytest.raises(cbert.UserError, match="give at least two, each once"):
            cbert.compare(wrong)
    with pytest.raises(cbert.UserError, match="give a list of work directories"):
        cbert.compare(str(trained))


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
        (
            {"train": 3},
            "train is a section; give it a mapping, or name one of its fields, such as train.",
        ),
        ({"model": {"gsu": None}}, "model.gsu is a section; give it a mapping, or name one"),
        ({"train": {"steps": 0}}, "train.steps is 0; it must be at least 1"),
        ({"task.name": "taging"}, "task.name is 'taging'; did you mean tagging? It must be o"),
    ):
        with pytest.raises(cbert.UserError, match=re.escape(message)):
            cbert.read_config("configs/base.py:gs", overrides)
    for source, overrides in ((f"{BASE}:gss", {}), (BASE, {"model.method": "gss"})):
        with pytest.raises(cbert.UserError, match=r"method is 'gss'; did you mean gs") as error:
            cbert.read_config(source, overrides)
        assert str(error.value).endswith(
            "gate; commands alone read CBERT_METHODS, so import the file of one that is yours"
        )


def test_overrides_may_be_any_mappings():
    overrides = types.MappingProxyType({"train": types.MappingProxyType({"steps": 7})})
    assert cbert.read_config(BASE, overrides).train.steps == 7


def test_the_path_of_a_config_may_have_colons(tmp_path):
    folder = tmp_path / "10:30" / "a:gs"
    folder.mkdir(parents=True)
    (folder / "own.py").write_text("from configs.base import get_config\n")
    for argument in ("gs", "np"):
        assert cbert.read_config(f"{folder}/own.py:{argument}").model.method == argument
    assert cbert.read_config(folder / "own.py").model.method == "gs"
    with pytest.raises(cbert.UserError, match=r"^configs/no\.py: no such file"):
        cbert.read_config("configs/no.py:hf:a")
    config_lib.save(cbert.read_config("configs/quickstart.py:film"), folder)
    assert cbert.read_config(folder).model.method == "film"


def test_overrides_may_be_numbers_of_numpy():
    overrides = {
        "train": {"steps": np.int64(3)},
        "optimizer.learning_rate": np.float32(0.5),
        "model.positions": np.bool_(True),
    }
    config = cbert.read_config(BASE, overrides)
    values = config.train.steps, config.optimizer.learning_rate, config.model.positions
    assert values == (3, 0.5, True)
    assert [*map(type, values)] == [int, float, bool]
    with pytest.raises(cbert.UserError, match=r"train.steps is 3.5; it must be a whole"):
        cbert.read_config(BASE, {"train.steps": np.float64(3.5)})


OVERRIDES = "give a dict from field to value"


def test_a_config_takes_no_field_that_does_not_exist(trained):
    for config in (cbert.read_config(BASE), cbert.read_config(trained)):
        config.train.steps = 3
        with pytest.raises(AttributeError, match='Did you mean "steps" instead of "stepz"'):
            config.train.stepz = 3


CONFIG = "give what read_config returns"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: cbert.read_config(None), "source is None; give a path"),
        (
            lambda run: cbert.read_config(BASE, [("a", 1)]),
            f"overrides is [('a', 1)]; {OVERRIDES}",
        ),
        (
            lambda run: cbert.read_config(BASE, "model.method=gs"),
            f"overrides is 'model.method=gs'; {OVERRIDES}",
        ),
        (
            lambda run: cbert.read_config(BASE, {"train": {1: 2}}),
            "a field in overrides is 1; give its name, a string",
        ),
        (lambda run: cbert.train({}, run), f"config is {{}}; {CONFIG}"),
        (lambda run: cbert.train(BASE, run), f"config is 'configs/base.py'; {CONFIG}"),
        (
            lambda run: cbert.train(ml_collections.ConfigDict(), run),
            "seed is missing; begin a config with base.get_config of configs/base.py",
        ),
        (lambda run: cbert.train(small(), None), "workdir is None; give a path"),
        (lambda run: cbert.build({}), f"config is {{}}; {CONFIG}"),
        (lambda run: cbert.load(None), "workdir is None; give a path"),
        (lambda run: cbert.load_exported(3), "directory is 3; give a path"),
        (lambda run: cbert.evaluate(None), "workdir is None; give a path"),
        (
            lambda run: cbert.evaluate(run, split=["test"]),
            "split is ['test']; it must be one of train, validation, test",
        ),
        (lambda run: cbert.evaluate(run, name=3), "name is 3; give a string"),
        (lambda run: cbert.evaluate(run, data_dir=3), "data_dir is 3; give a path"),
        (
            lambda run: cbert.load(run).complete_batch(3),
            "queries is 3; give a list of queries",
        ),
        (
            lambda run: text_predictors.assemble("regression").predict_batch(3),
            "queries is 3; give a list of queries",
        ),
    ],
)
def test_arguments_of_another_type_are_refused_in_one_line(call, message, trained):
    with pytest.raises(cbert.UserError) as refusal:
        call(trained)
    assert str(refusal.value) == message


@pytest.mark.soak
def test_callbacks_are_called_and_can_end_a_run_that_goes_on(data_dir, tmp_path):
    seen = []

    def note(name, ends=False):
        def call(event):
            seen.append((name, event.step, int(event.state.step), sorted(event.metrics)[:1]))
            return ends

        return call

    config = small("none", data__dir=data_dir, train__checkpoint_every=2)
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


def test_a_callback_cannot_change_what_is_logged():
    metrics, run = {"loss": 1.0}, types.SimpleNamespace(state=None, workdir=None)
    loop._tell(run, run, Stop(), lambda event: event.metrics.clear(), 1, metrics)
    assert metrics == {"loss": 1.0}


def test_bars_are_shown_in_a_notebook(monkeypatch):
    assert progress.bar(range(2)).disable

    class Kernel:
        config = {"IPKernelApp": {}}  # noqa: RUF012

        @classmethod
        def get_ipython(cls):
            return cls

    monkeypatch.setitem(sys.modules, "IPython", Kernel)
    bar = progress.bar(range(2))
    assert (bar.disable, bar.mininterval) == (False, 1)
