"""The context as positions: one a feature, with logits of its own, or as a global token."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.model.attention import Attention
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from cbert.schema import PAD_ITEM
from tests.conftest import some
from tests.models import SMALL, batch, build, encode, made
from tests.test_context import validation_loss
from tests.test_counts import SCHEMA
from tests.test_kernels import write_out

PLAIN = dataclasses.replace(SMALL, start_as_plain=True)
SEQUENCE = dataclasses.replace(SMALL, positions=True)
NEW = ["prefix", "np_untied", "global_token"]
D, C = 128, 736  # The sizes of the paper's Table 1, where the method none has 546432.


@pytest.mark.parametrize(
    ("method", "added"),
    [
        ("prefix", C * D + 12 * D),  # Twelve features.
        ("np_untied", (C + 1) * D + 2 * 8),  # Eight heads.
        ("global_token", (C + 1) * D),
    ],
)
def test_counts(method, added):
    assert table_1_count(build(SCHEMA, method, ModelConfig())) == 546432 + added


def with_own(params, own):
    return {**params, "conditioning": own}


def test_a_prefix_of_one_feature_is_np(schema, train_split):
    codes, context = batch(train_split)
    feature, observed = next(
        (feature, observed)
        for feature in schema.features
        for observed in [(context[feature.name] != feature.missing()).any(axis=1)]
        if set(observed.tolist()) == {True, False}
    )
    alone = dataclasses.replace(schema, features=(feature,))
    for config in (SMALL, PLAIN):
        model, params = made(alone, "np", config)
        own = dict(params["conditioning"])
        own["tokens"] = {f"feature_{feature.name}": own.pop("project")}
        expected = encode(model, params, codes, context)
        prefix = build(alone, "prefix", config)
        one = encode(prefix, with_own(params, own), codes, context)
        np.testing.assert_allclose(one[observed], expected[observed], atol=1e-5)
        # A feature that is missing is masked out, and [NP] shows its embedding.
        assert np.abs(one - expected)[~observed].max() > 1e-3


def missing(schema, rows):
    return {
        feature.name: np.repeat(np.asarray(feature.missing()), rows, axis=0)
        for feature in schema.features
    }


@pytest.mark.soak
def test_a_prefix_of_missing_features_alone_is_no_prefix(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "prefix")
    plain = {name: value for name, value in params.items() if name != "conditioning"}
    expected = encode(build(schema, "none"), plain, codes, context)
    absent = encode(model, params, codes, missing(schema, len(codes)))
    np.testing.assert_allclose(absent, expected, atol=1e-5)
    assert np.abs(encode(model, params, codes, context) - expected).max() > 0.01


def test_untied_logits_are_gates(schema, train_split):
    """A gate w of [NP] is theta_2 = log w, and theta_1 = -log w in the context's own row."""
    codes, context = batch(train_split)
    gates = np.array([0.1, 0.5, 2.0, 9.0], np.float32)  # One a head.
    gated, params = made(schema, "np", PLAIN)
    own = dict(params["conditioning"])
    # The sign of a gate does not count.
    own["gates"] = jnp.tile(gates * [1, -1, 1, -1], (SMALL.layers, 1))
    expected = encode(gated, with_own(params, own), codes, context)
    logits = jnp.log(gates)[:, None, None]
    untied = {"project": own["project"], "to_tokens": -logits, "to_context": logits}
    model = build(schema, "np_untied")
    one = encode(model, with_own(params, untied), codes, context)
    np.testing.assert_allclose(one, expected, atol=1e-5)
    # Each of the two matters, and with neither it is [NP].
    zeros = {name: jnp.zeros_like(logits) for name in ("to_tokens", "to_context")}
    for name in zeros:
        other = encode(model, with_own(params, {**untied, name: zeros[name]}), codes, context)
        assert np.abs(other - expected).max() > 1e-3
    np.testing.assert_allclose(
        encode(model, with_own(params, {**untied, **zeros}), codes, context),
        encode(
            build(schema, "np"), with_own(params, {"project": own["project"]}), codes, context
        ),
        atol=1e-5,
    )


@pytest.mark.parametrize("window", [0, 8])
def test_a_global_token_without_a_window_is_np(schema, train_split, window):
    codes, context = batch(train_split)
    model, params = made(schema, "np", SEQUENCE)
    expected = encode(model, params, codes, context)
    wide = build(schema, "global_token", SEQUENCE, window=window)
    np.testing.assert_allclose(encode(wide, params, codes, context), expected, atol=1e-5)


def reached(schema, codes, context, layers, queries=None):
    """Which positions' outputs change with the token at position 2, `bool [L]`."""
    config = dataclasses.replace(SEQUENCE, layers=layers)
    model, params = made(schema, "global_token", config, window=1)
    changed = codes.copy()
    changed[:, 2] = (codes[:, 2] + 1) % 80
    if queries is None:
        one, other = (encode(model, params, each, context) for each in (codes, changed))
    else:
        apply = jax.jit(model.apply)
        one, other = (
            apply({"params": params}, each, context, queries)[0] for each in (codes, changed)
        )
    return (np.abs(one - other).max(axis=(0, 2)) > 1e-6).tolist()


@pytest.mark.soak
def test_a_window_hides_what_is_farther_away(schema, train_split):
    long = train_split.lengths >= 7
    codes = train_split.items[long][:3, :7]
    context = {name: column[long][:3] for name, column in train_split.context.items()}
    assert (codes != PAD_ITEM).all()
    near = [False, True, True, True, False, False, False]
    assert reached(schema, codes, context, layers=1) == near
    order = np.array([5, 1, 2, 6, 3, 0, 4])
    queries = np.tile(order, (3, 1)).astype(np.int32)
    assert reached(schema, codes, context, 1, queries) == np.array(near)[order].tolist()
    # In the second block the context's position has read every token, and all read it.
    assert all(reached(schema, codes, context, layers=2))


def test_attention_with_a_mask_for_each_query(monkeypatch):
    numbers = np.random.default_rng(0)
    queries, x = (numbers.normal(size=(3, n, 16)).astype(np.float32) for n in (5, 7))
    mask = numbers.random((3, 5, 7)) < 0.5
    mask[..., 0] = True
    params = jax.jit(Attention(SMALL).init)(jax.random.key(0), queries, x, mask)

    def result(kernels):
        apply = jax.jit(Attention(dataclasses.replace(SMALL, kernels=kernels)).apply)

        def total(params, x):
            return jnp.square(apply(params, queries, x, mask)).sum()

        # Each query reads what a mask of one row would show it.
        read = apply(params, queries, x, mask)
        for query in range(5):
            alone = apply(params, queries[:, query : query + 1], x, mask[:, query])
            np.testing.assert_allclose(read[:, query], alone[:, 0], atol=1e-5)
        return jax.jit(jax.value_and_grad(total, (0, 1)))(params, x)

    expected = result("plain")
    for terms in (0, 32):
        write_out(monkeypatch, terms)
        found = result("fast")
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, expected)


def test_a_set_has_no_window(schema):
    with pytest.raises(UserError, match=r"global_token\.window is 2, but model\.positions is"):
        parameter_tree.shapes(build(schema, "global_token", window=2))


@pytest.mark.soak
@pytest.mark.parametrize("method", some(NEW, "prefix"))
def test_a_context_that_matters_lowers_the_loss(method):
    """The optimum is log 16 without the context and log 4 with it."""
    assert validation_loss(method) < np.log(4) + 0.15


ALL = [(name, {}) for name in ("label_add", "late_concat", "late_gate", *NEW)]


@pytest.mark.soak
@pytest.mark.parametrize(("method", "options"), [*ALL, ("global_token", {"window": 2})])
def test_queries_remat_and_bfloat16_give_the_same(schema, train_split, method, options):
    codes, context = batch(train_split)
    queries = np.tile(np.array([6, 1, 3], np.int32), (6, 1))
    config = dataclasses.replace(SEQUENCE, layers=2, dropout=0.1)
    model, params = made(schema, method, config, **options)
    everywhere = encode(model, params, codes, context)

    def run(config, rngs=None):
        own = build(schema, method, config, **options)

        def total(params):
            x = own.encoder.apply({"params": params}, method=chosen, rngs=rngs)
            return jnp.square(x.astype(jnp.float32)).sum(), x

        def chosen(encoder):
            x, _ = encoder.embedding(codes)
            return encoder(x, codes != PAD_ITEM, context, queries)

        (_, x), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(params)
        return x, gradients

    np.testing.assert_allclose(run(config)[0], everywhere[:, [6, 1, 3]], atol=1e-5)
    half, _ = run(dataclasses.replace(config, dtype="bfloat16"))
    assert half.dtype == jnp.bfloat16
    error = np.abs(np.asarray(half, np.float32) - everywhere[:, [6, 1, 3]])
    assert 0 < error.mean() < 0.03 * np.std(everywhere)
    rngs = {"dropout": jax.random.key(1)}
    kept, again = (run(dataclasses.replace(config, remat=r), rngs) for r in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), kept, again)
