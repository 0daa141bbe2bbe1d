"""The method that reads histories: its tokens, its nesting in [GS], and what it sees.

Legend: D = 16; the schema has one history of at most three items, and a day.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cbert.model import attention, parameter_tree
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from cbert.schema import MASK_ITEM, Categorical, History, Schema
from tests.model_costs import assert_traced
from tests.models import SMALL, applied, build, encode, made
from tests.test_counts import PAPER, SCHEMA
from tests.test_global_states import dense, norm

ITEMS = tuple("abcdefgh")
VIEWED, DAY = History("viewed", 8, max_items=3), Categorical("day", 6, ("mon", "tue"))
CODES = np.array([[0, 1, MASK_ITEM, -1], [4, MASK_ITEM, 2, 3]], np.int32)


def schema_of(*features):
    return Schema("set", 4, ITEMS, (1,) * len(ITEMS), features)


def outputs(model, params, schema, *contexts):
    return encode(model, params, CODES, schema.encode_contexts(contexts))


def tokens_of(model, params, schema, *contexts):
    def begun(module):
        context = module.embed_context(schema.encode_contexts(contexts))
        x = jnp.zeros((len(contexts), 1, 16))
        return module.conditioning.begin(x, x[..., 0] == 0, context)[2]

    return [np.asarray(x) for x in applied(model, params, begun)]


def test_whether_a_history_has_a_known_item():
    def any_known(*histories):
        schema = schema_of(VIEWED)
        coded = schema.encode_contexts([{"viewed": items} for items in histories])["viewed"]
        return VIEWED.any_known(coded)

    assert any_known(["z"], ["z", "b"])
    assert not any_known(["z", "y"], [], None)


@pytest.mark.soak
def test_tokens_are_items_and_features_or_nothing():
    schema = schema_of(VIEWED, DAY)
    model, params = made(schema, "history", blocks=0)
    contexts = {"viewed": ["a", "h"], "day": "mon"}, {"viewed": []}, {"day": "tue"}, {}
    tokens, shown = tokens_of(model, params, schema, *contexts)
    own, table = params["conditioning"]["tokens"], params["embedding"]["items"]
    day = params["context_encoder"]["feature_day"]["embedding"]
    assert shown.astype(int).tolist() == [
        [1, 1, 0, 1, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    viewed = table[jnp.array([0, 7])] + own["type_viewed"]
    np.testing.assert_allclose(tokens[0, :2], viewed, atol=1e-6)
    mapped = dense(own["features"]["feature_day"], np.asarray(day)[[3, 4]])
    np.testing.assert_allclose(tokens[[0, 2], 3], mapped, atol=1e-6)
    np.testing.assert_array_equal(tokens[:, 4], np.broadcast_to(own["empty"][0], (4, 16)))


def test_a_block_over_one_token_by_hand():
    """Attention to one token is its value and output projections."""
    schema = schema_of(DAY)
    model, params = made(schema, "history")
    without = build(schema, "history", blocks=0)
    own = params["conditioning"]
    block, plain = own["encoder_0"], {k: v for k, v in own.items() if k != "encoder_0"}
    contexts = {"day": "mon"}, {"day": "odd"}
    before, _ = tokens_of(without, {**params, "conditioning": plain}, schema, *contexts)
    x = before[:, 0]
    both = {name: p[..., 16:] for name, p in block["attention"]["key_value"].items()}
    y = dense(block["attention"]["out"], dense(both, x))
    x = norm(x + y, block["attention_norm"]["LayerNorm_0"])
    y = dense(block["fnn"]["out"], np.maximum(dense(block["fnn"]["hidden"], x), 0))
    x = norm(x + y, block["fnn_norm"]["LayerNorm_0"])
    after, _ = tokens_of(model, params, schema, *contexts)
    np.testing.assert_allclose(after[:, 0], x / 4, atol=1e-5)


def test_with_one_token_it_is_a_value_projection_of_gs():
    """The state of [GS] is the token, through a ReLU that never cuts off."""
    schema = schema_of(DAY)
    model, params = made(schema, "history", blocks=0)
    own, far = params["conditioning"], 10.0
    token = own["tokens"]["features"]["feature_day"]
    state = {
        "hidden": {"kernel": token["kernel"], "bias": token["bias"] + far},
        "out": {"kernel": jnp.eye(16), "bias": jnp.full(16, -far)},
    }
    gs = {"state": state}
    for layer in range(SMALL.layers):
        read = own[f"attention_{layer}"]
        kernel, bias = (read["key_value"][name][..., 16:] for name in ("kernel", "bias"))
        gs[f"value_{layer}"] = {
            "kernel": kernel @ read["out"]["kernel"],
            "bias": bias @ read["out"]["kernel"] + read["out"]["bias"],
        }
        # The norm of [GS] learns nothing.
        own[f"add_and_norm_{layer}"] = {
            "LayerNorm_0": {"scale": jnp.ones(16), "bias": jnp.zeros(16)}
        }
    contexts = {"day": "mon"}, {"day": "tue"}
    one = outputs(model, params, schema, *contexts)
    other = outputs(build(schema, "gs"), {**params, "conditioning": gs}, schema, *contexts)
    np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.soak
def test_only_the_items_of_a_history_matter():
    """Neither their order, as in a set, nor padding; a missing feature has no token."""
    schema = schema_of(VIEWED, DAY)
    model, params = made(schema, "history")
    history = {"viewed": ["a", "h"], "day": "mon"}
    one = outputs(model, params, schema, history, {"viewed": ["a"]})
    again = outputs(model, params, schema, {**history, "viewed": ["h", "a"]}, {"viewed": ["a"]})
    np.testing.assert_allclose(one, again, atol=1e-5)
    changed = outputs(model, params, schema, {**history, "viewed": ["a", "g"]}, {})
    assert np.abs(one - changed)[:, :3].max(axis=(1, 2)).min() > 1e-3
    longer = schema_of(dataclasses.replace(VIEWED, max_items=6), DAY)
    padded = outputs(build(longer, "history"), params, longer, history, {"viewed": ["a"]})
    np.testing.assert_allclose(one, padded, atol=1e-5)
    # The embedding of "missing" is never seen.
    embedding = params["context_encoder"]["feature_day"]["embedding"]
    params["context_encoder"]["feature_day"]["embedding"] = embedding.at[1].add(5.0)
    same = outputs(model, params, schema, history, {"viewed": ["a"]})
    np.testing.assert_array_equal(one, same)


@pytest.mark.soak
@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_gradients_reach_the_items_of_a_history(kernels):
    schema = schema_of(VIEWED)
    config = dataclasses.replace(SMALL, kernels=kernels, layers=1)
    model, params = made(schema, "history", config)
    columns = schema.encode_contexts([{"viewed": ["f", "g"]}, {}])

    def total(params):
        x, *_ = model.apply({"params": params}, CODES, columns, np.array([[2], [1]], np.int32))
        return (x * jnp.arange(16)).sum()

    gradient = jax.jit(jax.grad(total))(params)
    of_items = np.abs(gradient["embedding"]["items"]).max(axis=1)
    assert (of_items[[5, 6]] > 1e-4).all()
    assert of_items[7] == 0
    assert np.abs(gradient["conditioning"]["tokens"]["type_viewed"]).max() > 1e-4


def test_an_empty_context_has_gradients_as_large_as_others():
    """Before the first step; a token of zeros would make them ten thousand times larger."""
    schema = schema_of(VIEWED, DAY)
    model = build(schema, "history", dataclasses.replace(SMALL, layers=1))
    params = parameter_tree.initialize(model, jax.random.key(0))

    @jax.jit
    def gradient_norm(columns):
        def total(params):
            x, *_ = model.apply({"params": params}, CODES, columns, CODES[:, :1] * 0)
            return (x * jnp.arange(16)).sum()

        return optax.tree.norm(jax.grad(total)(params)["conditioning"])

    full, empty = (
        gradient_norm(schema.encode_contexts([context] * 2))
        for context in ({"viewed": ["a", "h"], "day": "mon"}, {})
    )
    assert 0.1 < empty / full < 10


def test_counts_and_operations(monkeypatch):
    attention_size, ends = 4 * (128 * 128 + 128), 2 * 128
    block = attention_size + 128 * 256 * 2 + 256 + 128 + 2 * ends
    read = 4 * (attention_size + ends)
    tokens = (736 + 12 + 1) * 128  # And one that stands in for none.
    for blocks in (0, 1, 2):
        model = build(SCHEMA, "history", ModelConfig(), blocks=blocks)
        assert table_1_count(model) == PAPER["none"] + tokens + read + blocks * block
    # The type of a history is a vector, and its items need no projection.
    model = build(schema_of(VIEWED, DAY), "history", ModelConfig(), blocks=0)
    assert table_1_count(model) == PAPER["none"] + (1 + (6 + 1) + 1) * 128 + read
    monkeypatch.setattr(attention, "SHORT", 0)
    # The context encoder also maps the mean of the history's items to its width.
    assert_traced(build(schema_of(VIEWED, DAY), "history", blocks=2), extra=16 * 8)
