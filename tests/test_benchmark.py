"""The benchmark's count of operations and its output, but never its times."""

import collections
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import processes, tasks
from cbert.benchmark import measure, peer, scaling, tables, workload
from cbert.data.batching import Batches
from cbert.errors import UserError
from cbert.model import attention, parameter_tree
from cbert.model.conditioning import NAMES
from configs import stylist, text
from tests import text_data
from tests.conftest import refused, run, some


def multiply_adds(jaxpr) -> int:
    """The multiply-adds of all matrix products in a program and in its inner programs."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += inner * math.prod(equation.outvars[0].aval.shape)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", None)
            if inner is not None:
                total += multiply_adds(getattr(inner, "jaxpr", inner))
    return total


def operations(method, monkeypatch) -> tuple[float, float]:
    """Operations of an example of five items at the paper's size: as counted, as traced.

    Attention is made of matrix products here.
    """
    monkeypatch.setattr(attention, "SHORT", 0)
    config, sizes = stylist.get_config(method), workload.Sizes(length=5)
    schema = workload.make_schema(config, sizes)
    model = workload.config_lib.build_model(config, schema)
    shapes = parameter_tree.shapes(model)
    codes = jnp.zeros((3, 5), jnp.int32)
    context = {feature.name: jnp.zeros((3, 1), jnp.int32) for feature in schema.features}

    def forward(params):
        states, table, _ = model.apply({"params": params}, codes, context, codes[:, :1])
        return states[:, 0] @ table.T

    traced = multiply_adds(jax.make_jaxpr(forward)(shapes).jaxpr)
    return workload.operations(config, schema, 5), 6 * traced / 3


@pytest.mark.parametrize("method", some(NAMES, "none", "np", "gsu"))
def test_operations_are_those_of_the_traced_model(method, monkeypatch):
    counted, traced = operations(method, monkeypatch)
    assert counted == traced


def test_the_workload_has_the_papers_sizes():
    sizes = workload.Sizes()
    lengths = collections.Counter(sizes.lengths().tolist())
    assert set(lengths) == {4, 5, 6, 7, 8}
    assert np.mean(sizes.lengths()) == pytest.approx(5.0, abs=0.05)
    schema = workload.make_schema(stylist.get_config(), sizes)
    assert (schema.context_width, len(schema.items), schema.max_items) == (736, 30_000, 8)


def text_config(task):
    config = text.get_config(f"{task},tiny")
    config.train.batch_size = 4
    config.model.update({"dropout": 0.0, "attention_dropout": 0.0})
    return config


@pytest.mark.parametrize("task", ["masked_language", "classification"])
def test_operations_are_those_of_the_traced_text_model(task):
    """All positions are traced but those that the last block leaves out."""
    config, sizes = text_config(task), workload.Sizes(items=200, length=40)
    schema = workload.make_schema(config, sizes)
    made = tasks.create(config, workload.config_lib.build_model(config, schema), schema)
    split = workload.make_split(config, sizes, schema)
    shapes = parameter_tree.shapes(made.model)
    columns = {name: column[:4] for name, column in split.columns.items() if name != "context"}
    masked = jnp.zeros((4, 6), jnp.int32)  # 15 % of 40.

    def forward(params):
        outputs = made.outputs(params, {**columns, "context": {}}, masked)
        return outputs.vectors @ outputs.table.T if task == "masked_language" else outputs

    traced = multiply_adds(jax.make_jaxpr(forward)(shapes).jaxpr)
    assert workload.operations(config, schema, 40) == 6 * traced / 4


def test_the_peer_gets_our_batches():
    """Of sets of four to eight items, and of texts."""
    config, sizes = stylist.get_config(), workload.Sizes(items=60, context=10)
    schema = workload.make_schema(config, sizes)
    split = workload.make_split(config, sizes, schema)
    batches = Batches(split.lengths, 256, 0, config.train.length_buckets)
    ours = collections.Counter(batches(step)[1] for step in range(32))
    chosen = peer.choose_batches(config, split, schema, batches, 32)
    theirs = collections.Counter(batch["codes"].shape[1] for batch in chosen)
    assert len(chosen) == 8
    assert all(abs(4 * theirs[length] - ours[length]) <= 4 for length in ours)
    for batch in chosen:
        at_masks = np.take_along_axis(batch["codes"], batch["positions"], axis=1)
        assert batch["positions"].shape == (256, 1)
        assert (at_masks == 60).all()
        assert ((batch["codes"] == 60).sum(axis=1) == 1).all()
        assert np.take_along_axis(batch["mask"], batch["positions"], axis=1).all()
    config, sizes = text_config("masked_language"), workload.Sizes(items=60, length=40)
    schema = workload.make_schema(config, sizes)
    split = workload.make_split(config, sizes, schema)
    [batch] = peer.choose_batches(config, split, schema, Batches(split.lengths, 4, 0), 1)
    assert batch["targets"].shape == (4, 6)
    assert (batch["codes"][:, 0] == schema.codes["[CLS]"]).all()
    assert ((batch["codes"] == schema.codes["[MASK]"]).sum(axis=1) == 6).all()


SPEEDS = (
    *("examples_per_second", "tokens_per_second", "padding", "step_ms"),
    *("host_fraction", "of_peak"),
)


def test_texts_are_for_two_tasks_and_have_a_token():
    with pytest.raises(UserError, match=r"'tagging'.*masked_language and classification"):
        workload.make_schema(text_config("tagging"), workload.Sizes())
    with pytest.raises(UserError, match=r"length is 2, .*; give length=3 or more"):
        workload.make_schema(text_config("classification"), workload.Sizes(length=2))


@pytest.mark.soak
def test_prepared_texts(tmp_path):
    """An epoch of texts of different lengths: what is padding is counted."""
    text_data.prepare_texts(tmp_path, "label")
    split, _ = text_data.load(tmp_path, "label")
    done = run(
        *("benchmark", "--prepared", "--json", "--rounds=2"),
        "--config=configs/text.py:masked_language,tiny",
        f"--config.data.dir={tmp_path}",
        *("--config.data.name=texts_label", "--config.train.length_buckets=1"),
        *("--config.train.batch_size=32", "--config.model.layers=1"),
    )
    [method] = json.loads(done.stdout)["methods"]
    padding = 1 - split.lengths.mean() / split.lengths.max()
    assert method["padding"] == pytest.approx(padding, abs=0.01)
    mean = method["tokens_per_second"] / method["examples_per_second"]
    assert mean == pytest.approx(split.lengths.mean(), rel=0.02)


SMALL = (
    *("--rounds=2", "--steps=2", "--items=50", "--context=10", "--length=3"),
    *("--config.model.layers=1", "--config.model.dimension=8", "--config.model.heads=2"),
)


@pytest.mark.soak
def test_json_is_one_object():
    done = run("benchmark", "--json", "--methods=none,gsu", "--seeds=2", *SMALL)
    results = json.loads(done.stdout)
    assert [method["method"] for method in results["methods"]] == ["none", "gsu"]
    for method in results["methods"]:
        # A step has 256 examples of each seed, and both numbers are of the same rounds.
        product = method["examples_per_second"] * method["step_ms"] / 1000
        assert product == pytest.approx(512)
        assert 0 < method["of_peak"] < 1
        assert 0 <= method["host_fraction"] < 1
    assert "peer" not in results
    plain, gsu = results["methods"]
    assert (plain["time_over_none"], plain["operations_over_none"]) == (1, 1)
    low, high = gsu["time_over_none_quartiles"]
    assert 0 < low <= gsu["time_over_none"] <= high
    assert gsu["operations_over_none"] > 1


def test_the_cost_over_none_is_of_rounds_of_one_turn():
    """The ratios are 2, 3 and 4 though the machine slows down between the rounds."""
    quartiles = measure.Timing([2, 9, 16]).over(measure.Timing([1, 3, 4]))
    assert quartiles == [2.5, 3, 3.5]
    low, middle, high = quartiles
    cost = {"time_over_none": middle, "time_over_none_quartiles": [low, high]}
    speed = {**dict.fromkeys(SPEEDS, 1.0), "compile_s": [2.0], "operations_over_none": 1.5}
    methods = [{"method": name, **speed, **cost} for name in ("none", "gsu")]
    sizes = {"length": 5, "matmul_peak_gflops": 1, "start_to_first_step_s": 1}
    table = tables.format_points([{"methods": methods, **sizes, "peak_memory_mb": 1}])
    heading, _, row = table.splitlines()[:3]
    columns = [column.strip() for column in heading.split("  ") if column]
    assert columns[-3:] == ["time over none", "quartiles", "operations over none"]
    assert row.split()[-5:] == ["3.00", "2.50", "to", "3.50", "1.50"]


@pytest.mark.soak
def test_scaling_measures_each_point_in_a_process(monkeypatch):
    monkeypatch.setattr(scaling, "CURVES", {"seeds": (2,), "devices": (2,)})
    flags = dict(flag.removeprefix("--").split("=") for flag in SMALL)

    def command(curve, value):
        more = {"seeds": value} if curve == "seeds" else {}
        return processes.command("experiments.benchmark", {**flags, **more, "json": True})

    results = scaling.measure(command)
    [seeds], [devices] = results["curves"]["seeds"], results["curves"]["devices"]
    assert (seeds["value"], devices["value"]) == (2, 2)
    # A step has 256 examples of each seed.
    assert seeds["examples_per_second"] * seeds["step_ms"] / 1000 == pytest.approx(512)
    assert devices["examples_per_second"] * devices["step_ms"] / 1000 == pytest.approx(256)
    table = scaling.format_curves(results["curves"]).splitlines()
    assert [line.split()[:2] for line in table[1:]] == [["seeds", "2"], ["devices", "2"]]


def test_a_short_step_keeps_a_decimal():
    point = {"value": 2, "examples_per_second": 2e5, "step_ms": 1.26, "peak_memory_mb": 700.0}
    table = scaling.format_curves({"length": [point]}).splitlines()
    assert table[1].split() == ["length", "2", "200,000", "1.3", "700"]


def test_the_plot_has_its_place_before_anything_is_measured(tmp_path):
    """A folder that is missing is made, and one that cannot be is refused."""
    pytest.importorskip("matplotlib")
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="taken is not a directory"):
        scaling.check_plot(str(tmp_path / "taken" / "curves.svg"))
    target = tmp_path / "new" / "curves.svg"
    scaling.check_plot(str(target))
    point = {"value": 2, "step_ms": 1.26, "peak_memory_mb": 700.0}
    scaling.plot({"length": [point], "seeds": [point]}, str(target))
    assert "<!-- items a set -->" in target.read_text()


def test_a_peer_that_ends_without_a_word_is_named_by_its_exit_code(monkeypatch):
    monkeypatch.setenv("PEER_PYTHON", "false")
    with pytest.raises(UserError, match="exit code 1; PEER_PYTHON may name another Python"):
        peer.check()
    monkeypatch.setenv("PEER_PYTHON", "/no/python")
    with pytest.raises(UserError, match=r"/no/python.*; PEER_PYTHON may name another Python"):
        peer.check()


def test_the_peer():
    """The peer gives ratios, or a line that says how to install the extra."""
    try:
        peer.check()
    except UserError:
        assert 'pip install ".[bench]"' in refused("benchmark", "--peer=hf", *SMALL)
        return
    compared = json.loads(run("benchmark", "--peer=hf", "--json", *SMALL).stdout)["peer"]
    for name in ("ratio_strongest", "ratio_stock", "ratio_evaluation"):
        low, high = compared[f"{name}_quartiles"]
        assert 0 < low <= compared[name] <= high
        assert compared[f"{name}_ours"] > 0
        assert compared[f"{name}_theirs"] > 0
        assert compared[f"{name}_form"] in peer.FORMS[name]
    assert 1 < compared["matmul_peak_gflops"] < 1e6


def test_mistakes():
    assert "fixed_state" in refused("benchmark", "--methods=fixed_state")
    assert "leave out --seeds" in refused("benchmark", "--accelerator", "--seeds=3")
    error = refused("benchmark", "--prepared", "--items=30")
    assert "--items belongs to random examples" in error
    for flag in ("--steps", "--config.train.batch_size"):
        error = refused("benchmark", "--scaling", f"{flag}=2")
        assert f"{flag} belongs to a measurement of one size" in error
    assert "minutes is nan; give a number" in refused("benchmark", "--minutes=nan")
