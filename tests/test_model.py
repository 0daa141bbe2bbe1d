"""What the encoder must be: nesting relations, symmetries, no leaks, exact gradients."""

import dataclasses
import functools

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data import masking
from cbert.evaluation import questions
from cbert.model import attention, bert
from cbert.model.conditioning import NAMES
from cbert.model.context import Numbers
from cbert.model.layers import Hyperparameters
from cbert.model.objective import cross_entropy
from cbert.schema import MASK_ITEM, PAD_ITEM

SMALL = Hyperparameters(dimension=16, heads=4, layers=3, feed_forward=24, dropout=0.0)


@functools.lru_cache
def initialized(schema, method, hyper, seed):
    return bert.initialize(bert.build(hyper, method, schema), jax.random.key(seed))


def made(schema, method, hyper=SMALL, seed=0):
    model = bert.build(hyper, method, schema)
    params = initialized(schema, method, hyper, seed)
    # Biases and scales away from 0 and 1, so that none of them can be forgotten unseen.
    noise = np.random.default_rng(1)
    params = jax.tree.map(
        lambda x: x + 0.1 * noise.standard_normal(x.shape, np.float32), params
    )
    return model, params


def batch(split, rows=6, length=8):
    context = {name: column[:rows] for name, column in split.context.items()}
    return split.items[:rows, :length], context


def encode(model, params, codes, context):
    """The last block's output at every position, `[B, L, D]`."""
    everywhere = np.broadcast_to(np.arange(codes.shape[1]), codes.shape)

    def run(module):
        x, _ = module.embedding(codes)
        return module.encode(x, codes != PAD_ITEM, context, everywhere)

    return jax.jit(functools.partial(model.apply, method=run))({"params": params})


def hide(codes, places):
    codes = codes.copy()
    codes[np.arange(len(codes)), places] = MASK_ITEM
    return codes


def with_state_closed(params):
    """V = 0 in every block, so that the state is not read."""
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
    plain = bert.build(SMALL, "none", schema)
    # Scale 1 and bias 0: the extra norm then repeats the one before it.
    params["blocks_0"]["attention_norm"] = params["blocks_1"]["attention_norm"] = params[
        "blocks_2"
    ]["attention_norm"] = {"LayerNorm_0": {"scale": jnp.ones(16), "bias": jnp.zeros(16)}}
    bare = {name: value for name, value in params.items() if name != "conditioning"}
    one = encode(model, params, codes, context)
    other = encode(plain, bare, codes, context)
    np.testing.assert_allclose(one, other, atol=2e-5)


def test_gsu_with_an_identity_update_is_gs(schema, train_split):
    codes, context = batch(train_split)
    hyper = dataclasses.replace(SMALL, update_norm=False)
    model, params = made(schema, "gsu", hyper)
    eye = jnp.eye(16)
    for layer in range(2):
        # ReLU passes both signs: [I, -I] then [I; -I].
        params["conditioning"][f"fnn_{layer}"] = {
            "hidden": {"kernel": jnp.concatenate([eye, -eye], 1), "bias": jnp.zeros(32)},
            "out": {"kernel": jnp.concatenate([eye, -eye], 0), "bias": jnp.zeros(16)},
        }
    state = {k: v for k, v in params["conditioning"].items() if not k.startswith("fnn")}
    reader = bert.build(SMALL, "gs", schema)
    one = encode(model, params, codes, context)
    other = encode(reader, {**params, "conditioning": state}, codes, context)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_gsu_with_an_empty_update_and_its_residual_is_gs(schema, train_split):
    codes, context = batch(train_split)
    hyper = dataclasses.replace(SMALL, update_norm=False, update_residual=True)
    model, params = made(schema, "gsu", hyper)
    state = params["conditioning"]
    for layer in range(2):
        state[f"fnn_{layer}"]["out"] = jax.tree.map(
            jnp.zeros_like, state[f"fnn_{layer}"]["out"]
        )
    state = {name: value for name, value in state.items() if not name.startswith("fnn")}
    one = encode(model, params, codes, context)
    other = encode(
        bert.build(hyper, "gs", schema), {**params, "conditioning": state}, codes, context
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("scale", [0.0884, 1.0])
def test_an_updated_state_begins_with_the_deviation_that_is_asked_for(schema, scale):
    hyper = dataclasses.replace(SMALL, update_scale=scale)
    model = bert.build(hyper, "gsu", schema)
    params = initialized(schema, "gsu", hyper, 0)
    state = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)

    def update(module):
        return module.conditioning.update(0, None, None, state, None)

    found = model.apply({"params": params}, method=update)
    np.testing.assert_allclose(found.std(axis=1), scale, rtol=1e-3)


def test_a_learned_norm_of_scale_one_is_the_plain_one_without_biases(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "gs", dataclasses.replace(SMALL, state_norm="scale"))
    plain = {"state": params["conditioning"]["state"]}
    for layer in range(3):
        name = f"add_and_norm_{layer}"
        params["conditioning"][name] = {"LayerNorm_0": {"scale": jnp.ones(16)}}
        kernel = params["conditioning"][f"value_{layer}"]["kernel"]
        plain[f"value_{layer}"] = {"kernel": kernel, "bias": jnp.zeros(16)}
    one = encode(model, params, codes, context)
    other = encode(
        bert.build(SMALL, "gs", schema), {**params, "conditioning": plain}, codes, context
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_concat_as_one_network_of_item_and_context(schema, train_split):
    """W2 max(0, W1 [x; c] + b1) + b2, with W1 in one piece."""
    codes, context = batch(train_split)
    model, params = made(schema, "c", dataclasses.replace(SMALL, concat="fnn"))

    def entered(module):
        x, _ = module.embedding(codes)
        c = module.context_encoder(context)
        return x, c.vector, module.conditioning.enter(x, codes != PAD_ITEM, c, None)[0]

    x, c, found = model.apply({"params": params}, method=entered)
    own = params["conditioning"]
    both = jnp.concatenate([x, jnp.broadcast_to(c[:, None], (*x.shape[:2], c.shape[1]))], -1)
    kernel = jnp.concatenate([own["items"]["kernel"], own["context"]["kernel"]])
    hidden = jnp.maximum(both @ kernel + own["context"]["bias"], 0)
    expected = hidden @ own["out"]["kernel"] + own["out"]["bias"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_long_vector_begins_as_large_as_an_embedding():
    """Squared norms of about 1, whether it has one number or a thousand."""
    hyper = Hyperparameters(initializer="scaled")
    for numbers in (1, 1000):
        values = np.random.default_rng(0).standard_normal((400, numbers))
        values = np.concatenate([np.ones((400, 1)), values], axis=1).astype(np.float32)
        module = Numbers(hyper, 64)
        (found, _), _ = module.init_with_output(jax.random.key(0), values)
        assert 0.7 < np.square(found).sum(axis=1).mean() < 1.4


@pytest.mark.parametrize("method", NAMES)
def test_sets_are_equivariant_to_permutation(schema, train_split, method):
    codes, context = batch(train_split)
    order = np.random.default_rng(0).permutation(codes.shape[1])
    model, params = made(schema, method)
    one = encode(model, params, codes, context)
    other = encode(model, params, codes[:, order], context)
    np.testing.assert_allclose(one[:, order], other, atol=2e-5)


def test_positions_break_the_symmetry(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "gsu", dataclasses.replace(SMALL, positions=True))
    one = encode(model, params, codes, context)
    other = encode(model, params, codes[:, ::-1], context)
    assert np.abs(one[:, ::-1] - other).max() > 0.1


@pytest.mark.parametrize("method", NAMES)
def test_padding_never_matters(schema, train_split, method):
    short = train_split.lengths == 4
    codes = train_split.items[short][:5]
    context = {name: column[short][:5] for name, column in train_split.context.items()}
    hidden = np.tile(np.arange(4), (5, 1))
    model, params = made(schema, method)
    apply = jax.jit(model.apply)
    tight, *_ = apply({"params": params}, codes[:, :4], context, hidden)
    padded, *_ = apply({"params": params}, codes, context, hidden)
    assert (codes[:, 4:] == PAD_ITEM).all()
    np.testing.assert_allclose(tight, padded, atol=1e-5)


@pytest.mark.parametrize("method", NAMES)
def test_a_hidden_item_never_leaks(schema, train_split, method):
    """Changing the hidden items changes nothing that the model says of them."""
    codes, context = batch(train_split)
    places = np.arange(6, dtype=np.int32)
    model, params = made(schema, method)
    answer, apply = questions.make_answer(model), jax.jit(model.apply)

    def said(codes):
        """Positions hidden, their items, which are asked for, and the model's vectors."""
        seen, hidden, targets, asked = masking.hide(
            jax.random.key(0), jnp.asarray(codes), places, 6, masking.Masking("rate", 0.3), 80
        )
        found, *_ = apply({"params": params}, seen, context, hidden)
        return [np.asarray(part) for part in (hidden, targets, asked > 0, found)]

    hidden, targets, asked, found = said(codes)
    changed = codes.copy()
    rows = np.nonzero(asked)[0]
    changed[rows, hidden[asked]] = (targets[asked] + 7) % 80
    again, other_targets, _, other = said(changed)
    assert (again == hidden).all()
    assert (other_targets[asked] != targets[asked]).all()
    assert (other == found).all()

    # In evaluation too: the probabilities of all items at the first place sum to one.
    total = np.zeros(6)
    for item in range(80):
        replaced = codes.copy()
        replaced[:, 0] = item
        data = {"items": replaced, "context": context}
        first = np.zeros((1, 6), np.int32)
        log_probability, _ = answer(params, data, places[None], first, codes.shape[1])
        total += np.exp(np.asarray(log_probability)[0])
    np.testing.assert_allclose(total, 1.0, atol=1e-4)


@pytest.mark.parametrize("method", NAMES)
def test_the_context_is_used_by_all_but_none(schema, train_split, method):
    codes, context = batch(train_split)
    other = {name: column[::-1] for name, column in context.items()}
    model, params = made(schema, method)
    one = encode(model, params, codes, context)
    two = encode(model, params, codes, other)
    difference = np.abs(one - two).max()
    assert difference == 0 if method == "none" else difference > 1e-3


def plain_loss(params, codes, context, places, targets, features):
    """[GSU] from the paper's equations: no chunks, one product a matrix, heads by a loop."""

    def dense(p, x):
        return x @ p["kernel"] + p["bias"]

    def norm(x, p=None):
        x = x - x.mean(-1, keepdims=True)
        x = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return x if p is None else x * p["LayerNorm_0"]["scale"] + p["LayerNorm_0"]["bias"]

    def fnn(p, x):
        return dense(p["out"], jnp.maximum(dense(p["hidden"], x), 0))

    def embed(feature):
        p, rows = params["context_encoder"][f"feature_{feature.name}"], context[feature.name]
        if feature.is_token:
            shown = jnp.asarray(rows != 0, "float64")[..., None]
            return (p["embedding"][rows] * shown).sum(1) / jnp.maximum(shown.sum(1), 1)
        edges = (np.array(feature.edges) - feature.mean) / feature.scale
        reached = (rows[:, 1:] >= edges.astype(np.float32)).sum(1)
        return p["embedding"][np.where(rows[:, 0] > 0, 1 + reached, 0)]

    table = jnp.concatenate(
        [params["embedding"]["items"], params["embedding"]["special"][::-1]]
    )
    x = table[codes]  # -1, -2 and -3 count from the end.
    seen = jnp.asarray(codes != PAD_ITEM)
    conditioning = params["conditioning"]
    g = fnn(conditioning["state"], jnp.concatenate([embed(f) for f in features], 1))
    for layer in range(3):
        p = params[f"blocks_{layer}"]
        key_value = dense(p["attention"]["key_value"], x)
        heads = []
        for head in range(4):
            start = 4 * head
            query = dense(p["attention"]["query"], x)[..., start : start + 4]
            key = key_value[..., start : start + 4]
            value = key_value[..., 16 + start : 16 + start + 4]
            logits = jnp.where(seen[:, None], query @ key.swapaxes(1, 2) / 2.0, -jnp.inf)
            heads.append(jax.nn.softmax(logits) @ value)
        x = norm(
            x + dense(p["attention"]["out"], jnp.concatenate(heads, -1)), p["attention_norm"]
        )
        x = norm(x + dense(conditioning[f"value_{layer}"], g)[:, None])
        x = norm(x + fnn(p["fnn"], x), p["fnn_norm"])
        if layer < 2:
            g = norm(
                fnn(conditioning[f"fnn_{layer}"], g),
                {"LayerNorm_0": conditioning[f"norm_{layer}"]},
            )
    found = x[np.arange(len(codes)), places]
    found = jnp.maximum(dense(params["transform"], found), 0)
    logits = found @ params["embedding"]["items"].T + params["embedding"]["bias"]
    return -jax.nn.log_softmax(logits)[np.arange(len(codes)), targets].sum()


@pytest.mark.parametrize("short", [0, 32])
def test_gradients_equal_a_plain_float64_reference(schema, train_split, monkeypatch, short):
    """Attention as matrix products (0) and with short sums written out."""
    monkeypatch.setattr(attention, "SHORT", short)
    codes, context = batch(train_split, rows=8)
    places = np.arange(8) % 4
    targets = codes[np.arange(8), places]
    codes = hide(codes, places)
    model, params = made(schema, "gsu")

    def loss(params):
        found, *last = model.apply({"params": params}, codes, context, places[:, None])
        return cross_entropy(found[:, 0], *last, targets, 32).sum()

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), "float64"), params)
        expected, exact = jax.value_and_grad(plain_loss)(
            exact, codes, context, places, targets, schema.features
        )
        exact = jax.tree.map(np.asarray, exact)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for path, found in flax.traverse_util.flatten_dict(gradients).items():
        want = flax.traverse_util.flatten_dict(exact)[path]
        error = np.linalg.norm(found - want) / max(np.linalg.norm(want), 1e-3)
        assert error < 2e-4, (path, error)
