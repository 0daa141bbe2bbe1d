"""A context added to a text model begins without effect, and learns."""

import functools

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cbert.model.conditioning.new_position import CLOSED
from tests import bert_reference
from tests.bert_reference import RANDOM_BERT
from tests.conftest import some
from tests.test_bert import INPUTS, PLAIN_STARTS, pretraining_outputs, weighted_sum
from tests.text_models import hidden_states, loaded, minilm


def plain_and_conditioned(folder, method, schema, **choices):
    plain = loaded(folder, hidden_states)
    conditioned = loaded(
        folder, hidden_states, method, schema.features[:3], start_as_plain=True, **choices
    )
    return plain, conditioned


@pytest.mark.parametrize("method", some(PLAIN_STARTS, "gsu"))
def test_a_context_begins_without_effect_and_learns(schema, train_split, method):
    (plain, before), (model, params) = plain_and_conditioned(RANDOM_BERT, method, schema)
    context = {name: column[:3] for name, column in train_split.context.items()}
    other = {name: column[3:6] for name, column in train_split.context.items()}
    apply = jax.jit(functools.partial(model.apply, **INPUTS))
    expected = jax.jit(plain.apply)({"params": before}, **INPUTS)
    for one, two in zip(expected, apply({"params": params}, context=context), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    if method == "none":
        return

    @jax.jit
    @jax.grad
    def gradient(params):
        hidden, pooled = model.apply({"params": params}, **INPUTS, context=context)
        return weighted_sum({"hidden": hidden, "pooled": pooled})

    @jax.jit
    def moved(params, state, gradients):
        updates, state = adam.update(gradients, state)
        return optax.apply_updates(params, updates), state

    adam = optax.adam(0.01)
    state, first = jax.jit(adam.init)(params), gradient(params)
    parts = flax.traverse_util.flatten_dict(first["conditioning"])
    assert any(np.abs(x).max() > 1e-3 for x in parts.values())
    for _ in range(2):
        params, state = moved(params, state, gradient(params))
    # Every part of the way from context to output has a gradient of its own by now.
    after = gradient(params)
    for path, x in flax.traverse_util.flatten_dict(after).items():
        # No context is empty here, so that what stands in for one is not read.
        if path[0] in ("conditioning", "context_encoder") and path[-1] != "empty":
            assert np.abs(x).max() > 0, path
    one, two = (apply({"params": params}, context=c)[0] for c in (context, other))
    assert np.abs(one - two).max() > 1e-4


@pytest.mark.parametrize("method", some(PLAIN_STARTS))
def test_a_context_on_minilm_begins_without_effect(schema, train_split, method):
    (plain, before), (model, params) = plain_and_conditioned(minilm(), method, schema)
    context = {name: column[:3] for name, column in train_split.context.items()}
    inputs = bert_reference.inputs(length=40, vocabulary=30_522)
    expected = jax.jit(plain.apply)({"params": before}, **inputs)
    outputs = jax.jit(model.apply)({"params": params}, **inputs, context=context)
    for one, two in zip(expected, outputs, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.soak
def test_a_gate_weighs_the_attention_to_the_new_position(schema, train_split):
    """With gates of 1 the position is seen as in the paper's form."""
    context = {name: column[:3] for name, column in train_split.context.items()}
    gated, params = loaded(
        RANDOM_BERT, method="np", features=schema.features[:3], start_as_plain=True
    )
    free, _ = loaded(RANDOM_BERT, method="np", features=schema.features[:3])
    gates = params["conditioning"].pop("gates")
    assert gates.shape == (2, 4)
    assert (gates == np.float32(CLOSED)).all()
    expected = pretraining_outputs(free, params, context)
    for sign in (1, -1):
        params["conditioning"]["gates"] = sign * jnp.ones((2, 4))
        opened = pretraining_outputs(gated, params, context)
        np.testing.assert_allclose(opened["tokens"], expected["tokens"], atol=1e-5)
