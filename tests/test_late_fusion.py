"""The context added to the embeddings or joined to the output, and never inside a block."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.model.conditioning import METHODS
from cbert.model.conditioning.method import GATES
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from tests.conftest import some
from tests.models import SMALL, applied, batch, build, encode, made
from tests.test_context import validation_loss
from tests.test_counts import SCHEMA

PLAIN = dataclasses.replace(SMALL, start_as_plain=True)
SEQUENCE = dataclasses.replace(SMALL, positions=True)
D, C = 128, 736  # The sizes of the paper's Table 1, where the method none has 546432.
FNN = (C + 1) * D + (D + 1) * D


@pytest.mark.parametrize(
    ("method", "choices", "added"),
    [
        ("label_add", {}, (C + 1) * D),
        ("late_concat", {}, FNN + (2 * D + 1) * D),
        ("late_gate", {}, FNN + (2 * D + 1) * D + (D + 1) * D),
        ("late_gate", {"form": "pure"}, FNN + (2 * D + 1) * D),
    ],
)
def test_counts(method, choices, added):
    assert table_1_count(build(SCHEMA, method, ModelConfig(), **choices)) == 546432 + added


def without(schema, params, codes, context):
    """The output of the method none with the same blocks."""
    bare = {name: value for name, value in params.items() if name != "conditioning"}
    return encode(build(schema, "none"), bare, codes, context)


def parts_of_context(model, params, context):
    """The context vector, and FNN(c) where the method has one."""
    vector = applied(model, params, "embed_context", context).vector
    own = params["conditioning"].get("state")
    if own is None:
        return vector, None
    hidden = jnp.maximum(vector @ own["hidden"]["kernel"] + own["hidden"]["bias"], 0)
    return vector, hidden @ own["out"]["kernel"] + own["out"]["bias"]


@pytest.mark.parametrize("method", ["label_add", "late_concat", "late_gate"])
def test_what_is_zero_keeps_the_context_out(schema, train_split, method):
    codes, context = batch(train_split)
    model, params = made(schema, method, PLAIN)
    own = params["conditioning"]
    zeros = jax.tree.map(jnp.zeros_like, own)
    closed = {**own, **{name: zeros[name] for name in METHODS[method].zero_is_plain}}
    expected = without(schema, params, codes, context)
    one = encode(model, {**params, "conditioning": closed}, codes, context)
    np.testing.assert_allclose(one, expected, atol=1e-5)
    assert np.abs(encode(model, params, codes, context) - expected).max() > 0.01


@pytest.mark.soak
@pytest.mark.parametrize("where", ["all", "cls"])
def test_label_add_is_a_product_on_the_embeddings(schema, train_split, where):
    codes, context = batch(train_split)
    model, params = made(schema, "label_add", SEQUENCE, where=where)

    def entered(module):
        x, _ = module.embedding(codes)
        return x, module.conditioning.begin(x, codes, module.embed_context(context))[0]

    x, output = model.encoder.apply({"params": params}, method=entered)
    own = params["conditioning"]["project"]
    added = parts_of_context(model, params, context)[0] @ own["kernel"] + own["bias"]
    shown = np.arange(8) == 0 if where == "cls" else np.ones(8, bool)
    np.testing.assert_allclose(output - x, added[:, None] * shown[:, None], atol=1e-5)


def test_a_set_has_no_first_item(schema):
    with pytest.raises(UserError, match=r"label_add\.where is 'cls', but model\.positions is"):
        parameter_tree.shapes(build(schema, "label_add", where="cls"))


def test_late_concat_is_a_product_on_the_output(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "late_concat")
    hidden = without(schema, params, codes, context)
    c = parts_of_context(model, params, context)[1]
    both = np.concatenate([hidden, np.broadcast_to(c[:, None], hidden.shape)], axis=-1)
    own = params["conditioning"]["out"]
    expected = both @ own["kernel"] + own["bias"]
    np.testing.assert_allclose(encode(model, params, codes, context), expected, atol=1e-5)
    own.update(kernel=jnp.eye(32, 16), bias=jnp.zeros(16))
    np.testing.assert_allclose(encode(model, params, codes, context), hidden, atol=1e-5)


@pytest.mark.parametrize("form", some(["mix", "pure"], "mix"))
def test_late_gate_is_a_weighted_mean(schema, train_split, form):
    codes, context = batch(train_split)
    model, params = made(schema, "late_gate", form=form)
    own = params["conditioning"]
    hidden = without(schema, params, codes, context)
    c = parts_of_context(model, params, context)[1]
    logits = hidden @ own["gate_hidden"]["kernel"] + own["gate_hidden"]["bias"]
    gate = 1 / (1 + np.exp(-logits - (c @ own["gate_context"]["kernel"])[:, None]))
    expected = gate * hidden
    if form == "mix":
        expected += (1 - gate) * (c @ own["out"]["kernel"] + own["out"]["bias"])[:, None]
    assert ("out" in own) == (form == "mix")
    ordinary = encode(model, params, codes, context)
    np.testing.assert_allclose(ordinary, expected, atol=1e-5)

    # The form that starts as the plain model is the same one when it is open.
    opened = {**params, "conditioning": {**own, "removed": jnp.ones(16)}}
    plain_start = build(schema, "late_gate", PLAIN, form=form)
    np.testing.assert_allclose(encode(plain_start, opened, codes, context), ordinary, atol=1e-5)
    own["gate_hidden"]["bias"] += 1000.0  # The gate is one.
    np.testing.assert_allclose(encode(model, params, codes, context), hidden, atol=1e-5)


def test_the_gate_that_is_shown_is_what_passes_of_the_output(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "late_gate", PLAIN, form="pure")
    params["conditioning"]["removed"] = jnp.linspace(0.0, 1.5, 16)
    apply = functools.partial(model.apply, method="hidden_states", mutable="intermediates")
    output, kept = jax.jit(apply)({"params": params}, codes, context)
    (sown,) = kept["intermediates"]["conditioning"][GATES]
    hidden = without(schema, params, codes, context)
    np.testing.assert_allclose(output, sown["gate"] * hidden, atol=1e-5)


@pytest.mark.soak
@pytest.mark.parametrize("method", some(["label_add", "late_concat", "late_gate"], "late_gate"))
def test_a_context_that_matters_lowers_the_loss(method):
    """The optimum is log 16 without the context and log 4 with it."""
    assert validation_loss(method) < np.log(4) + 0.15
