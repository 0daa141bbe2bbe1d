"""The encoder is symmetric, leaks no masked item, and its gradients are exact."""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data import masking
from cbert.model import attention, parameter_tree
from cbert.model.conditioning import NAMES
from cbert.model.config import ModelConfig
from cbert.model.cross_entropy import cross_entropy
from cbert.model.heads import MaskedItemHead
from cbert.schema import MASK_ITEM, PAD_ITEM, Categorical, Schema, TokenFeature, Vector
from cbert.tasks.masked_item import MaskedItem
from cbert.training import config as config_lib
from tests.conftest import small, some
from tests.models import SMALL, THREE_LAYERS, batch, encode, made


def masked(codes, positions):
    codes = codes.copy()
    codes[np.arange(len(codes)), positions] = MASK_ITEM
    return codes


def test_sequences_of_one_item_have_a_model():
    config = small("gs")
    config.model.positions = True
    schema = Schema("sequence", 1, ("a", "b"), (1, 1), (Categorical("day", 8, ("x", "y")),))
    shapes = parameter_tree.shapes(config_lib.build_model(config, schema))
    assert shapes["embedding"]["positions"].shape == (1, config.model.dimension)


@pytest.mark.parametrize("method", some(NAMES, "np", "gsu"))
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


@pytest.mark.parametrize("method", some(NAMES, "np", "gsu"))
def test_padding_never_matters(schema, train_split, method):
    short = train_split.lengths == 4
    codes = train_split.items[short][:5]
    context = {name: column[short][:5] for name, column in train_split.context.items()}
    queries = np.tile(np.arange(4), (5, 1))
    model, params = made(schema, method)
    apply = jax.jit(model.apply)
    tight, *_ = apply({"params": params}, codes[:, :4], context, queries)
    padded, *_ = apply({"params": params}, codes, context, queries)
    assert (codes[:, 4:] == PAD_ITEM).all()
    np.testing.assert_allclose(tight, padded, atol=1e-5)


@pytest.mark.parametrize("method", some(NAMES, "np", "gsu"))
def test_a_masked_item_never_leaks(schema, train_split, method):
    """Changing the masked items does not change the model's vectors for them."""
    codes, context = batch(train_split)
    indices = np.arange(6, dtype=np.int32)
    model, params = made(schema, method)
    task = MaskedItem(model, schema)
    predict, apply = jax.jit(task.predict), jax.jit(model.apply)

    def outputs(codes):
        """Masked positions, their items, which of them are real, and the model's vectors."""
        seen, positions, targets, weights = masking.mask(
            jax.random.key(0), jnp.asarray(codes), indices, 6, masking.Masking("rate", 0.3), 80
        )
        vectors, *_ = apply({"params": params}, seen, context, positions)
        return [np.asarray(part) for part in (positions, targets, weights > 0, vectors)]

    positions, targets, is_masked, vectors = outputs(codes)
    changed = codes.copy()
    rows = np.nonzero(is_masked)[0]
    changed[rows, positions[is_masked]] = (targets[is_masked] + 7) % 80
    again, other_targets, _, other = outputs(changed)
    assert (again == positions).all()
    assert (other_targets[is_masked] != targets[is_masked]).all()
    assert (other == vectors).all()

    # In evaluation the probabilities of all items at the first position sum to one.
    total = np.zeros(6)
    for item in range(80):
        replaced = codes.copy()
        replaced[:, 0] = item
        columns = {"items": replaced, "context": context}
        query = {"positions": np.zeros(6, np.int32)}
        total += np.exp(predict(params, columns, query)["log_probability"])
    np.testing.assert_allclose(total, 1.0, atol=1e-4)


@pytest.mark.parametrize("method", some(NAMES, "np", "gsu"))
def test_the_context_is_used_by_all_but_none(schema, train_split, method):
    codes, context = batch(train_split)
    other = {name: column[::-1] for name, column in context.items()}
    model, params = made(schema, method)
    one = encode(model, params, codes, context)
    two = encode(model, params, codes, other)
    difference = np.abs(one - two).max()
    assert difference == 0 if method == "none" else difference > 1e-3


@pytest.mark.parametrize("method", some(NAMES, "adaln_zero", "injector"))
def test_the_farthest_numbers_give_finite_outputs(schema, train_split, method):
    numbers = Vector("numbers", 8, dimension=3)
    model, params = made(dataclasses.replace(schema, features=(numbers,)), method)
    codes, _ = batch(train_split)
    rows = numbers.encode([[1e11, -1e11, 1e11]] * 6, schema.codes)
    assert rows[0].tolist() == [1, 1e4, -1e4, 1e4]
    assert np.isfinite(encode(model, params, codes, {"numbers": rows})).all()


def plain_loss(params, codes, context, positions, targets, features):
    """The loss of [GSU], from the paper's equations: no chunks, and a loop over heads."""

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
        if isinstance(feature, TokenFeature):
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
    vectors = x[np.arange(len(codes)), positions]
    vectors = jnp.maximum(dense(params["transform"], vectors), 0)
    logits = vectors @ params["embedding"]["items"].T + params["embedding"]["bias"]
    return -jax.nn.log_softmax(logits)[np.arange(len(codes)), targets].sum()


@pytest.mark.parametrize(
    ("activation", "wanted"),
    [("linear", [1.5, -0.5]), ("relu", [1.5, 0.0]), ("gelu", [1.39979, -0.15427])],
)
def test_the_dense_layer_before_the_output(activation, wanted):
    """By hand: [1, 2] through [[0.5, 0.5], [0.5, -0.5]] is [1.5, -0.5]; gelu(x) = x Φ(x)."""
    head = MaskedItemHead(ModelConfig(dimension=2, transform_activation=activation))
    kernel = np.array([[0.5, 0.5], [0.5, -0.5]], np.float32)
    params = {"transform": {"kernel": kernel, "bias": np.zeros(2, np.float32)}}
    out = head.apply({"params": params}, np.array([[[1.0, 2.0]]], np.float32))
    np.testing.assert_allclose(out, [[wanted]], atol=1e-5)


@pytest.mark.parametrize("short", some([0, 8], 8))
def test_gradients_equal_a_plain_float64_reference(schema, train_split, monkeypatch, short):
    """Attention uses matrix products (0), or writes short sums out (8)."""
    monkeypatch.setattr(attention, "SHORT", short)
    codes, context = batch(train_split, rows=8)
    positions = np.arange(8) % 4
    targets = codes[np.arange(8), positions]
    codes = masked(codes, positions)
    model, params = made(schema, "gsu", THREE_LAYERS)

    def loss(params):
        vectors, *last = model.apply({"params": params}, codes, context, positions[:, None])
        return cross_entropy(vectors[:, 0], *last, targets, 32).sum()

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), "float64"), params)

        def exact_loss(params):
            return plain_loss(params, codes, context, positions, targets, schema.features)

        expected, exact = jax.jit(jax.value_and_grad(exact_loss))(exact)
        exact = jax.tree.map(np.asarray, exact)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for path, gradient in flax.traverse_util.flatten_dict(gradients).items():
        want = flax.traverse_util.flatten_dict(exact)[path]
        error = np.linalg.norm(gradient - want) / max(np.linalg.norm(want), 1e-3)
        assert error < 2e-4, (path, error)
