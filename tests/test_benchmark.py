"""The benchmark's count of operations, and its output; never its times."""

import collections
import importlib.util
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.benchmark import workload
from cbert.data.masking import Masking
from cbert.model import attention
from cbert.model.conditioning import NAMES
from configs import stylist
from tests.conftest import refused, run


def multiply_adds(jaxpr) -> int:
    """Of all matrix products in a program, those of inner programs included."""
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


@pytest.mark.parametrize("method", NAMES)
def test_operations_are_those_of_the_traced_model(method, monkeypatch):
    """Sets of five at the paper's size, attention as products so that they can be counted."""
    monkeypatch.setattr(attention, "SHORT", 0)
    config, sizes = stylist.get_config(method), workload.Sizes(length=5)
    schema = workload.make_schema(sizes)
    model = workload.config_lib.build_model(config, schema)
    shapes = jax.eval_shape(
        lambda key: workload.contextual_bert.initialize(model, key), jax.random.key(0)
    )
    codes = jnp.zeros((3, 5), jnp.int32)
    context = {feature.name: jnp.zeros((3, 1), jnp.int32) for feature in schema.features}

    def forward(params):
        found, table, _ = model.apply({"params": params}, codes, context, codes[:, :1])
        return found[:, 0] @ table.T

    traced = multiply_adds(jax.make_jaxpr(forward)(shapes).jaxpr)
    assert workload.operations(config, sizes, 5, Masking()) == 6 * traced / 3


def test_the_workload_has_the_papers_sizes():
    sizes = workload.Sizes()
    lengths = collections.Counter(sizes.lengths().tolist())
    assert set(lengths) == {4, 5, 6, 7, 8}
    assert np.mean(sizes.lengths()) == pytest.approx(5.0, abs=0.05)
    schema = workload.make_schema(sizes)
    assert (schema.context_width, len(schema.items), schema.max_items) == (736, 30_000, 8)


SMALL = (
    *("--rounds=2", "--steps=2", "--items=50", "--context=10", "--length=3"),
    *("--config.model.layers=1", "--config.model.dimension=8", "--config.model.heads=2"),
)


def test_json_is_one_object():
    done = run("benchmark", "--json", "--methods=none,gsu", "--seeds=2", *SMALL)
    found = json.loads(done.stdout)
    assert [method["method"] for method in found["methods"]] == ["none", "gsu"]
    for method in found["methods"]:
        # A step of 256 sets of each seed: both figures are of the same rounds.
        product = method["sets_per_second"] * method["step_ms"] / 1000
        assert product == pytest.approx(512)
        assert 0 < method["share_of_matmul_peak"] < 1
        assert 0 <= method["host_share"] < 1
    assert "peer" not in found


def test_the_peer():
    """Ratios where the extra is installed, one line that says how to install it elsewhere."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        assert 'pip install ".[bench]"' in refused("benchmark", "--peer=hf", *SMALL)
        return
    peer = json.loads(run("benchmark", "--peer=hf", "--json", *SMALL).stdout)["peer"]
    for name in ("ratio_gathered", "ratio_stock", "ratio_evaluation"):
        low, high = peer[f"{name}_quartiles"]
        assert 0 < low <= peer[name] <= high
        assert peer[f"{name}_ours"] > 0
        assert peer[f"{name}_theirs"] > 0


def test_mistakes():
    assert "fixed_state" in refused("benchmark", "--methods=fixed_state")
    assert "--methods is empty" in refused("benchmark", "--methods=")
