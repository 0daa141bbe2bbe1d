"""The methods nest in each other, and each open choice does what its field says."""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.model.config import ModelConfig
from cbert.model.context import NumericalProjection
from cbert.model.layers import embedding_init, kernel_init
from cbert.schema import PAD_ITEM
from cbert.training import config as config_lib
from tests.conftest import small, some
from tests.models import SMALL, applied, batch, build, encode, initialized, made


def with_state_closed(params):
    """Parameters with V = 0 in every block, so that the state is not read."""
    flat = flax.traverse_util.flatten_dict(params)
    return flax.traverse_util.unflatten_dict(
        {
            path: jnp.zeros_like(x) if path[0] == "conditioning" and "value" in path[1] else x
            for path, x in flat.items()
        }
    )


def test_gs_with_a_closed_state_is_none_up_to_the_extra_norm(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "gs")
    params = with_state_closed(params)
    plain = build(schema, "none")
    # Scale 1 and bias 0: the extra norm then repeats the one before it.
    for layer in range(SMALL.layers):
        plain_norm = {"LayerNorm_0": {"scale": jnp.ones(16), "bias": jnp.zeros(16)}}
        params[f"blocks_{layer}"]["attention_norm"] = plain_norm
    bare = {name: value for name, value in params.items() if name != "conditioning"}
    one = encode(model, params, codes, context)
    other = encode(plain, bare, codes, context)
    np.testing.assert_allclose(one, other, atol=2e-5)


def test_gsu_with_an_identity_update_is_gs(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "gsu", update_norm="none")
    eye = jnp.eye(16)
    for layer in range(SMALL.layers - 1):
        # ReLU passes both signs: [I, -I] then [I; -I].
        params["conditioning"][f"fnn_{layer}"] = {
            "hidden": {"kernel": jnp.concatenate([eye, -eye], 1), "bias": jnp.zeros(32)},
            "out": {"kernel": jnp.concatenate([eye, -eye], 0), "bias": jnp.zeros(16)},
        }
    state = {k: v for k, v in params["conditioning"].items() if not k.startswith("fnn")}
    reader = build(schema, "gs")
    one = encode(model, params, codes, context)
    other = encode(reader, {**params, "conditioning": state}, codes, context)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_gsu_with_an_empty_update_and_its_residual_is_gs(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "gsu", update_norm="none", update_residual=True)
    state = params["conditioning"]
    for layer in range(SMALL.layers - 1):
        state[f"fnn_{layer}"]["out"] = jax.tree.map(
            jnp.zeros_like, state[f"fnn_{layer}"]["out"]
        )
    state = {name: value for name, value in state.items() if not name.startswith("fnn")}
    one = encode(model, params, codes, context)
    other = encode(
        build(schema, "gs"),
        {**params, "conditioning": state},
        codes,
        context,
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("method", some(["gsu", "gs_deep", "gsu_bi"], "gsu"))
def test_with_one_block_there_is_no_update(schema, train_split, method):
    codes, context = batch(train_split)
    config = dataclasses.replace(SMALL, layers=1)
    model, params = made(schema, method, config)
    reader, same = made(schema, "gs", config)
    assert jax.tree.structure(params) == jax.tree.structure(same)
    one = encode(model, params, codes, context)
    np.testing.assert_array_equal(one, encode(reader, params, codes, context))


@pytest.mark.parametrize("scale", some([0.0, 0.0884, 1.0], 0.0, 0.0884))
def test_an_updated_state_begins_with_the_deviation_that_is_asked_for(schema, scale):
    schema = dataclasses.replace(schema, features=schema.features[:1])
    model = build(schema, "gsu", update_scale=scale)
    params = initialized(model, 0)
    state = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)

    def update(module):
        return module.conditioning.update(0, None, None, state)

    updated = applied(model, params, update)
    np.testing.assert_allclose(updated.std(axis=1), scale or 16**-0.5, rtol=1e-3)


def test_a_learned_norm_of_scale_one_is_the_plain_one_without_biases(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "gs", state_norm="scale")
    plain = {"state": params["conditioning"]["state"]}
    for layer in range(SMALL.layers):
        name = f"add_and_norm_{layer}"
        params["conditioning"][name] = {"LayerNorm_0": {"scale": jnp.ones(16)}}
        kernel = params["conditioning"][f"value_{layer}"]["kernel"]
        plain[f"value_{layer}"] = {"kernel": kernel, "bias": jnp.zeros(16)}
    one = encode(model, params, codes, context)
    other = encode(
        build(schema, "gs"),
        {**params, "conditioning": plain},
        codes,
        context,
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_concat_as_one_network_of_item_and_context(schema, train_split):
    """The output equals W2 max(0, W1 [x; c] + b1) + b2, with W1 in one piece."""
    codes, context = batch(train_split)
    model, params = made(schema, "c", reading="fnn")

    def entered(module):
        x, _ = module.embedding(codes)
        c = module.embed_context(context)
        entered = module.conditioning.begin(x, codes != PAD_ITEM, c)
        return x, c.vector, entered[0]

    x, c, output = applied(model, params, entered)
    own = params["conditioning"]
    both = jnp.concatenate([x, jnp.broadcast_to(c[:, None], (*x.shape[:2], c.shape[1]))], -1)
    kernel = jnp.concatenate([own["items"]["kernel"], own["context"]["kernel"]])
    hidden = jnp.maximum(both @ kernel + own["context"]["bias"], 0)
    expected = hidden @ own["out"]["kernel"] + own["out"]["bias"]
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_kernels_and_tables_begin_as_those_of_bert_or_by_their_size():
    """A normal that is cut off at two deviations has 0.88 of its deviation."""
    bert, scaled = (ModelConfig(initializer=name) for name in ("bert", "scaled"))

    def drawn(init):
        return np.asarray(init(jax.random.key(0), (400, 300)))

    for values in map(drawn, (kernel_init(bert), embedding_init(bert, 300))):
        assert 0.0399 < np.abs(values).max() <= 0.04
        assert values.std() == pytest.approx(0.88 * 0.02, rel=0.01)
    assert drawn(kernel_init(scaled)).std() == pytest.approx(400**-0.5, rel=0.01)


def test_a_long_vector_begins_as_large_as_an_embedding():
    """The squared norm is about 1, whether the vector has one number or a thousand."""
    config = ModelConfig(initializer="scaled")
    for numbers in (1, 1000):
        values = np.random.default_rng(0).standard_normal((400, numbers))
        values = np.concatenate([np.ones((400, 1)), values], axis=1).astype(np.float32)
        module = NumericalProjection(config, 64)
        (embedding, _), _ = module.init_with_output(jax.random.key(0), values, None)
        assert 0.7 < np.square(embedding).sum(axis=1).mean() < 1.4


@pytest.mark.parametrize(
    ("method", "overrides", "reads"),
    [
        ("none", {}, False),
        ("gsu", {}, True),
        ("gsu", {"model__constant_context": True}, False),
        ("gsu_bi", {}, True),
        ("gsu_bi", {"model__gsu_bi__context": False}, False),
    ],
)
def test_whether_what_a_model_says_depends_on_the_context(method, overrides, reads):
    assert config_lib.reads_context(small(method, **overrides)) is reads
