"""The benchmark's count of operations and its output, but never its times."""

import collections
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import processes
from cbert.benchmark import peer, scaling, workload
from cbert.errors import UserError
from cbert.model import attention, contextual_bert
from cbert.model.conditioning import NAMES, PAPER
from configs import stylist
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


@pytest.mark.parametrize("method", some(NAMES, *PAPER))
def test_operations_are_those_of_the_traced_model(method, monkeypatch):
    """Examples have five items, the size is the paper's, and attention is matrix products."""
    monkeypatch.setattr(attention, "SHORT", 0)
    config, sizes = stylist.get_config(method), workload.Sizes(length=5)
    schema = workload.make_schema(config, sizes)
    model = workload.config_lib.build_model(config, schema)
    shapes = jax.eval_shape(
        lambda key: contextual_bert.initialize(model, key), jax.random.key(0)
    )
    codes = jnp.zeros((3, 5), jnp.int32)
    context = {feature.name: jnp.zeros((3, 1), jnp.int32) for feature in schema.features}

    def forward(params):
        states, table, _ = model.apply({"params": params}, codes, context, codes[:, :1])
        return states[:, 0] @ table.T

    traced = multiply_adds(jax.make_jaxpr(forward)(shapes).jaxpr)
    assert workload.operations(config, schema, 5) == 6 * traced / 3


def test_the_workload_has_the_papers_sizes():
    sizes = workload.Sizes()
    lengths = collections.Counter(sizes.lengths().tolist())
    assert set(lengths) == {4, 5, 6, 7, 8}
    assert np.mean(sizes.lengths()) == pytest.approx(5.0, abs=0.05)
    schema = workload.make_schema(stylist.get_config(), sizes)
    assert (schema.context_width, len(schema.items), schema.max_items) == (736, 30_000, 8)


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


def test_mistakes():
    assert "fixed_state" in refused("benchmark", "--methods=fixed_state")
    assert "--methods is empty" in refused("benchmark", "--methods=")
