"""MAG and the injector by hand, and where their gates and factors are zero."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.model.conditioning.method import FEED_FORWARD
from cbert.schema import PAD_ITEM
from tests.conftest import some
from tests.models import SMALL, applied, batch, build, encode, initialized, made
from tests.test_modulation import embedded, without


def shifted(own, x, vector, beta):
    """The multimodal adaptation gate, from its equations."""
    gate = x @ own["gate_x"]["kernel"]
    gate = (
        gate + (vector @ own["gate_context"]["kernel"] + own["gate_context"]["bias"])[:, None]
    )
    value = (vector @ own["value"]["kernel"])[:, None]
    h = np.maximum(gate, 0) * value + own["bias"]
    lengths = [np.linalg.norm(each, axis=-1, keepdims=True) for each in (x, h)]
    return x + np.minimum(beta * lengths[0] / lengths[1], 1) * h


@pytest.mark.parametrize("beta", some([0.1, 100.0], 0.1))
def test_mag_by_hand(schema, train_split, beta):
    """With a beta of 0.1 every shift is cut, with one of 100 none is."""
    codes, context = batch(train_split)
    early, params = made(schema, "mag", beta=beta)
    own, rest = params["conditioning"], without(params)
    x, vector = embedded(early, params, codes, context)

    def begun(encoder):
        return encoder.conditioning.begin(x, codes != PAD_ITEM, encoder.embed_context(context))

    got, *_ = applied(early, params, begun)
    expected = shifted(own, x, vector, beta)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    moved = np.linalg.norm(got - x, axis=-1) / np.linalg.norm(x, axis=-1)
    assert (np.abs(moved - beta) < 1e-3).all() if beta < 1 else (moved < beta / 2).all()
    plain = encode(build(schema, "none"), rest, codes, context)
    late = encode(build(schema, "mag", where="late", beta=beta), params, codes, context)
    np.testing.assert_allclose(late, shifted(own, plain, vector, beta), atol=2e-5)


@pytest.mark.soak
@pytest.mark.parametrize("where", some(["early", "late"], "early"))
def test_mag_with_a_closed_gate_is_none(schema, train_split, where):
    codes, context = batch(train_split)
    model, params = made(schema, "mag", where=where)
    for name in ("gate_x", "gate_context", "bias"):
        params["conditioning"][name] = jax.tree.map(
            jnp.zeros_like, params["conditioning"][name]
        )
    expected = encode(build(schema, "none"), without(params), codes, context)
    np.testing.assert_allclose(encode(model, params, codes, context), expected, atol=1e-5)


def test_an_injector_by_hand(schema):
    """The context's matrices, made for each example."""
    model, params = made(schema, "injector", rank=3, bottleneck=5)
    own = params["conditioning"]
    numbers = np.random.default_rng(0)
    x, y = numbers.standard_normal((2, 6, 4, 16), np.float32)
    state = numbers.standard_normal((6, 16)).astype(np.float32)

    def added(encoder):
        return encoder.conditioning.residual(1, FEED_FORWARD, x, y, state, lambda x, y: x + y)

    got = applied(model, params, added)
    weights = state @ own["weights_1"]["kernel"] + own["weights_1"]["bias"]
    for row in range(6):
        down, up, bias = np.split(np.asarray(weights[row]), [3, 6])
        down = own["down_1"]["kernel"] @ np.diag(1 + down) @ own["hidden_1"]["kernel"]
        up = own["up_1"]["kernel"] @ np.diag(1 + up) @ own["out_1"]["kernel"]
        adapted = np.maximum(y[row] @ down + bias, 0) @ up + own["out_1"]["bias"]
        np.testing.assert_allclose(got[row], x[row] + y[row] + adapted, atol=1e-5)


@pytest.mark.soak
def test_what_they_add_begins_neither_huge_nor_tiny(schema):
    """The gate of MAG begins near 1, and the inner factors of an injector keep lengths."""
    config = dataclasses.replace(SMALL, initializer="bert")
    model = build(schema, "mag", config)
    gate = initialized(model, 0)["conditioning"]["gate_context"]
    np.testing.assert_array_equal(gate["bias"], 1)
    model = build(schema, "injector", config)
    params = initialized(model, 0)
    y = np.random.default_rng(0).standard_normal((6, 4, 16), np.float32)

    def added(encoder):
        state = np.zeros((6, 16), np.float32)
        return encoder.conditioning.residual(0, FEED_FORWARD, y, y, state, lambda x, y: y)

    adapted = applied(model, params, added) - y
    last = params["conditioning"]["out_0"]["kernel"].std() * 16**0.5
    assert 0.3 < adapted.std() / y.std() / last < 1.5


@pytest.mark.soak
def test_an_injector_whose_last_factor_is_zero_is_none(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "injector")
    own = params["conditioning"]
    for layer in range(SMALL.layers):
        own[f"out_{layer}"] = jax.tree.map(jnp.zeros_like, own[f"out_{layer}"])
    expected = encode(build(schema, "none"), without(params), codes, context)
    np.testing.assert_allclose(encode(model, params, codes, context), expected, atol=1e-5)
