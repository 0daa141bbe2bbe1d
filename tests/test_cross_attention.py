"""Cross-attention to the features' tokens: its count, its nesting, and the weights it shows."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.model.attention import WEIGHTS, Attention
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from cbert.schema import Categorical
from tests.conftest import some
from tests.models import SMALL, batch, build, encode, initialized, made
from tests.test_modulation import NONE, STYLIST, dense


def test_count():
    """The features' projections with biases, the null token, four attentions and norms."""
    assert table_1_count(build(STYLIST, "cross_attention", ModelConfig())) == (
        NONE + (736 + 12 + 1) * 128 + 4 * (4 * dense(128, 128) + 2 * 128)
    )


@pytest.mark.soak
def test_a_token_begins_as_large_as_an_embedding(schema, train_split):
    """The squared length is about 1, whether a feature is wide or narrow."""
    _, context = batch(train_split, rows=60)
    model = build(schema, "cross_attention", dataclasses.replace(SMALL, dimension=256))
    params = initialized(model, 0)

    def tokens(encoder):
        return encoder.conditioning.tokens(encoder.embed_context(context))

    tokens, observed = model.encoder.apply({"params": params}, method=tokens)
    assert tokens.shape == (60, len(schema.features), 256)
    assert observed.shape == (60, len(schema.features))
    squares = np.square(tokens).sum(axis=-1)
    lengths = [squares[observed[:, f], f].mean() for f in range(len(schema.features))]
    assert min(lengths) > 0.3
    assert max(lengths) < 2


def test_attention_to_one_token_is_gs(schema, train_split):
    codes, _ = batch(train_split)
    mood = Categorical("mood", 4, ("hot", "cold"))
    schema = dataclasses.replace(schema, features=(mood,))
    context = schema.encode_contexts([{"mood": "hot"}, {"mood": "cold"}] * 3)
    model, params = made(schema, "gs")
    own = params["conditioning"]
    # With large biases no unit is cut off, so that the state is a linear map of the context.
    state = {"hidden": {**own["state"]["hidden"], "bias": jnp.full(16, 10.0)}}
    own["state"] = state = {**own["state"], **state}
    expected = encode(model, params, codes, context)

    linear = {
        "kernel": state["hidden"]["kernel"] @ state["out"]["kernel"],
        "bias": state["hidden"]["bias"] @ state["out"]["kernel"] + state["out"]["bias"],
    }
    # The tokens are a feature's and the null token, so they are scaled by the root of 2.
    linear = {key: value / 2**0.5 for key, value in linear.items()}
    # The null token is far away in a direction that the keys count, so its logit is far down.
    away = jnp.ones(16)
    reading = {"tokens": {"feature_mood": linear}, "null": -1e4 * away[None, None]}
    for layer in range(SMALL.layers):
        value = own[f"value_{layer}"]
        reading[f"attention_{layer}"] = {
            "query": {"kernel": jnp.zeros((16, 16)), "bias": jnp.ones(16)},
            "key_value": {
                "kernel": jnp.concatenate([jnp.ones((16, 16)), value["kernel"]], axis=1),
                "bias": jnp.concatenate([jnp.zeros(16), value["bias"]]),
            },
            "out": {"kernel": jnp.eye(16), "bias": jnp.zeros(16)},
        }
        reading[f"add_and_norm_{layer}"] = {
            "LayerNorm_0": {"scale": jnp.ones(16), "bias": jnp.zeros(16)}
        }
    params = {**params, "conditioning": reading}
    got = encode(build(schema, "cross_attention"), params, codes, context)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def missing(schema, rows):
    return {
        feature.name: np.repeat(np.asarray(feature.missing()), rows, axis=0)
        for feature in schema.features
    }


def weights(model, params, codes, context, queries):
    """The attention weights of each block `[B, H, P, F + 1]`, and all that attention gave."""

    def attention(module, name):
        return "conditioning" in module.path and name == "__call__"

    _, kept = jax.jit(
        functools.partial(
            model.apply, capture_intermediates=attention, mutable=["intermediates"]
        )
    )({"params": params}, codes, context, queries)
    own = kept["intermediates"]["conditioning"]
    return [own[f"attention_{layer}"][WEIGHTS][0] for layer in range(SMALL.layers)], own


@pytest.mark.soak
@pytest.mark.parametrize("form", some([("auto", False), ("plain", True)], ("auto", False)))
def test_its_weights_are_those_it_reads_by(schema, train_split, form):
    """The tokens' values, weighed by what is kept, are what the attention gave."""
    codes, context = batch(train_split)
    first = schema.features[0]
    context[first.name] = np.concatenate([np.asarray(first.missing()), context[first.name][1:]])
    config = dataclasses.replace(SMALL, kernels=form[0], remat=form[1])
    model, params = made(schema, "cross_attention", config)
    queries = np.tile(np.array([0, 2], np.int32), (6, 1))
    kept, own = weights(model, params, codes, context, queries)
    features = len(schema.features)
    assert [x.shape for x in kept] == [(6, 4, p, features + 1) for p in (8, 2)]
    ((tokens, observed),) = own["tokens"]["__call__"]
    null = jnp.broadcast_to(params["conditioning"]["null"], (6, 1, 16))
    tokens = jnp.concatenate([tokens, null], axis=1) * (features + 1) ** 0.5
    for layer, weight in enumerate(kept):
        np.testing.assert_allclose(weight.sum(axis=-1), 1, atol=1e-5)
        hidden = np.pad(~np.asarray(observed), ((0, 0), (0, 1)))[:, None, None]
        assert np.where(hidden, weight, 0).max() == 0
        params_of_layer = params["conditioning"][f"attention_{layer}"]
        both = params_of_layer["key_value"]
        value = (tokens @ both["kernel"] + both["bias"])[..., 16:].reshape(6, -1, 4, 4)
        read = jnp.einsum("bhpk,bkhe->bphe", weight, value).reshape(6, -1, 16)
        out = params_of_layer["out"]
        np.testing.assert_allclose(
            read @ out["kernel"] + out["bias"],
            own[f"attention_{layer}"]["__call__"][0],
            atol=1e-5,
        )
    assert not observed[0, 0]
    assert 0 < observed.mean() < 1


@pytest.mark.soak
def test_without_a_reader_no_weights_are_computed(schema, train_split, monkeypatch):
    """Neither initialisation nor a forward pass keeps them."""
    monkeypatch.setattr(Attention, "_weights", None)
    codes, context = batch(train_split, rows=2)
    model = build(schema, "cross_attention")
    assert model.init(jax.random.key(0), *model.smallest_inputs()).keys() == {"params"}
    model.apply({"params": initialized(model, 0)}, codes, context, codes[:, :1] * 0)


@pytest.mark.soak
def test_without_features_it_reads_the_null_token(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "cross_attention")
    own, absent = params["conditioning"], missing(schema, len(codes))
    before = encode(model, params, codes, absent)
    present = encode(model, params, codes, context)
    own["tokens"] = jax.tree.map(jnp.zeros_like, own["tokens"])
    np.testing.assert_allclose(encode(model, params, codes, absent), before, atol=1e-6)
    assert np.abs(encode(model, params, codes, context) - present).max() > 0.01
    own["null"] += 1.0
    assert np.abs(encode(model, params, codes, absent) - before).max() > 0.01
