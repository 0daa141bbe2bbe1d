"""Decay, packing, the schedule, and what the loss is divided by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.training import config as config_lib
from cbert.training import optimizer
from cbert.training import run as run_lib
from tests.conftest import small
from tests.steps import flat, ones, steps


def test_weight_decay_shrinks_kernels_and_nothing_else(schema):
    params = ones(config_lib.build_model(small(), schema))
    made = optimizer.make_optimizer(lambda step: 0.1, 0.5, 1.0, 0.9, 0.999)
    packed = optimizer.pack(params)
    none = jax.tree.map(jnp.zeros_like, packed)
    updates, _ = made.update(none, made.init(packed), packed)
    updates = optimizer.unpack(updates, params)
    for path, update in flat(updates).items():
        decays = path.endswith("kernel")
        np.testing.assert_allclose(update, -0.05 if decays else 0.0, rtol=1e-6, err_msg=path)
    assert sum(path.endswith("kernel") for path in flat(updates)) > 10
    assert flat(updates)["embedding/items"].max() == 0


def test_packing_is_undone_by_unpacking(schema, monkeypatch):
    monkeypatch.setattr(optimizer, "LARGE", 200)
    params = ones(config_lib.build_model(small(), schema))
    numbers = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: jnp.asarray(numbers.random(leaf.shape)), params)
    packed = optimizer.pack(params)
    assert packed["rest.embedding.items"] is params["embedding"]["items"]
    assert sum(leaf.size for leaf in packed.values()) == sum(
        leaf.size for leaf in jax.tree.leaves(params)
    )
    for path, leaf in flat(optimizer.unpack(packed, params)).items():
        np.testing.assert_array_equal(leaf, flat(params)[path])


def test_the_schedule_warms_up_and_decays():
    for name, middle in (("cosine", 0.5), ("linear", 0.5), ("constant", 1.0)):
        rate = optimizer.learning_rate(name, 1.0, 10, 110)
        assert float(rate(0)) == pytest.approx(0.1)
        assert float(rate(10)) == pytest.approx(1.0)
        assert float(rate(60)) == pytest.approx(middle)
        assert float(rate(110)) == pytest.approx(1.0 if name == "constant" else 0.0, abs=1e-6)


def test_the_loss_is_divided_by_a_constant(data_dir, schema, monkeypatch):
    """Twice the expected count halves the gradient, whatever the batch holds."""
    config = small("none", data__dir=data_dir, model__dropout=0.0)
    norms = []
    for expected in (1.0, 2.0):
        monkeypatch.setattr(
            run_lib.masking_lib, "expected_count", lambda *_, value=expected: value
        )
        norms.append(steps(config, schema, 1)[1][0]["gradient_norm"])
    assert norms[0] == pytest.approx(2 * norms[1], rel=1e-6)
