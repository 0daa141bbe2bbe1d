"""The fast kernels equal the libraries' plain ones, gradients included."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.model import attention, short_attention
from cbert.model.attention import Attention
from cbert.model.conditioning import NAMES
from cbert.model.cross_entropy import cross_entropy, plain_cross_entropy
from cbert.model.layer_norm import normalise
from cbert.model.layers import Dropout, norm
from cbert.model.scoring import score
from cbert.schema import MASK_ITEM
from cbert.tasks.losses import masked_cross_entropy
from tests.conftest import some
from tests.models import SMALL, batch, build, made


def forms(config=SMALL, names=("fast", "plain")):
    return [dataclasses.replace(config, kernels=kernels) for kernels in names]


def assert_equal(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), one, other)


def write_out(monkeypatch, terms):
    """Sums of up to so many terms are written out, also in what was traced before."""
    monkeypatch.setattr(short_attention, "TERMS", terms)
    for function in (short_attention._forward, short_attention._backward):
        function.clear_cache()


@pytest.mark.parametrize(
    "shape", [None, (4, 1, 1), (4, 5, 7), (1, 5, 7), (4, 1, 7), (3, 4, 1, 7)]
)
def test_attention_with_and_without_a_bias(monkeypatch, shape):
    monkeypatch.setattr(attention, "SHORT", 0)
    numbers = np.random.default_rng(0)
    queries, x = (numbers.normal(size=(3, n, 16)).astype(np.float32) for n in (5, 7))
    mask = np.arange(7) < np.array([[7], [4], [1]])
    bias = None if shape is None else numbers.normal(size=shape).astype(np.float32)
    weights = numbers.normal(size=(3, 5, 16)).astype(np.float32)
    params = jax.jit(Attention(SMALL).init)(jax.random.key(0), queries, x, mask, bias)
    over = (0, 1, 2) if bias is None else (0, 1, 2, 3)

    def program(kernels):
        module = Attention(dataclasses.replace(SMALL, kernels=kernels))

        def loss(params, queries, x, bias):
            return (module.apply(params, queries, x, mask, bias) * weights).sum()

        return jax.jit(jax.value_and_grad(loss, over)).lower(params, queries, x, bias)

    def result(program):
        return program.compile()(params, queries, x, bias)

    expected, programs = result(program("plain")), []
    for terms in (0, 32):
        write_out(monkeypatch, terms)
        programs.append(program("fast"))
        assert_equal(result(programs[-1]), expected)
    assert programs[0].as_text() != programs[1].as_text()
    # As no length is short, `auto` takes the form for long texts.
    assert_equal(result(program("auto")), expected)


@pytest.mark.parametrize("method", some(NAMES, "np"))
def test_a_whole_model(schema, train_split, method):
    codes, context = batch(train_split)
    codes = codes.copy()
    codes[:, 0] = MASK_ITEM
    queries = np.zeros((6, 1), np.int32)
    results = []
    for config in forms():
        model, params = build(schema, method, config), made(schema, method)[1]

        def total(params, model=model, config=config):
            vectors, *output = model.apply({"params": params}, codes, context, queries)
            return masked_cross_entropy(config, vectors[:, 0], *output, np.arange(6)).sum()

        results.append(jax.jit(jax.value_and_grad(total))(params))
    assert_equal(*results)


@pytest.mark.parametrize(("scale", "bias"), [(True, True), (False, True), (False, False)])
def test_layer_normalisation(scale, bias):
    """It equals Flax's, for rows of different sizes and means."""
    numbers = np.random.default_rng(0)
    sizes, means = (numbers.uniform(0.1, 3, (2, 5, 1)) for _ in range(2))
    x = (numbers.normal(size=(2, 5, 48)) * sizes + means).astype(np.float32)
    weights = numbers.normal(size=x.shape).astype(np.float32)
    drawn = {"scale": numbers.normal(size=48), "bias": numbers.normal(size=48)}
    named = [name for name, on in (("scale", scale), ("bias", bias)) if on]
    params = {"params": {name: drawn[name].astype(np.float32) for name in named}}
    results = []
    for config in forms(dataclasses.replace(SMALL, norm_epsilon=0.3)):
        module = norm(config, scale, bias)

        def loss(params, x, module=module):
            return (module.apply(params, x) * weights).sum()

        apply, gradient = jax.jit(module.apply), jax.jit(jax.grad(loss, (0, 1)))
        results.append((apply(params, x), gradient(params, x)))
    assert_equal(*results)
    expected = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(
        x.var(axis=-1, keepdims=True) + 0.3
    )
    expected = expected * (drawn["scale"] if scale else 1) + (drawn["bias"] if bias else 0)
    assert_equal(results[0][0], expected)


def test_layer_normalisation_in_bfloat16_rounds_the_result_alone():
    numbers = np.random.default_rng(0)
    x = jnp.asarray(numbers.normal(size=(7, 64)), jnp.bfloat16)
    weights = jnp.asarray(numbers.normal(size=(7, 64)), jnp.bfloat16)
    scale, bias = (jnp.asarray(numbers.normal(size=64), jnp.float32) for _ in range(2))
    results = []
    for dtype in (jnp.bfloat16, jnp.float32):

        def loss(*own, dtype=dtype):
            return (normalise(*own, 1e-6, dtype).astype(jnp.float32) * weights).sum()

        own = x.astype(dtype), scale, bias
        normalised = jax.jit(normalise, static_argnums=(3, 4))(*own, 1e-6, dtype)
        results.append((normalised, jax.jit(jax.grad(loss, (0, 1, 2)))(*own)))
    (y, gradients), (exact, expected) = results
    np.testing.assert_array_equal(y, exact.astype(jnp.bfloat16))
    np.testing.assert_array_equal(gradients[0], expected[0].astype(jnp.bfloat16))
    assert_equal(gradients[1:], expected[1:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_short_attention_of_large_logits_and_long_sums(dtype):
    """Logits of some hundreds; sums of 32 terms are not rounded term by term."""
    numbers = np.random.default_rng(0)
    query = jnp.asarray(20 * numbers.normal(size=(1, 32, 2, 3)), dtype)
    key_value = jnp.asarray(1 + numbers.random(size=(2, 1, 32, 32, 3)), dtype)
    bias = np.full((1, 1, 1), 200, np.float32)  # It changes no weight.
    found = short_attention.attend(query, key_value, np.ones((1, 1, 1), bool), bias)
    exact, (key, value) = (np.asarray(x, np.float64) for x in (query, key_value))
    logits = np.einsum("heqb,hekb->hqkb", exact, key) / 32**0.5
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    weights = weights / weights.sum(axis=2, keepdims=True)
    expected = np.einsum("hqkb,hekb->heqb", weights, value)
    rtol = 1e-4 if dtype == "float32" else 2**-7
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=rtol)


def test_the_normalisation_of_equal_entries_is_finite():
    """The mean of their squares may be a little less than the square of their mean."""
    x = np.repeat(np.linspace(1, 1e4, 200, dtype=np.float32)[:, None], 48, axis=1)
    y = normalise(x, np.ones(48, np.float32), np.zeros(48, np.float32), 1e-6, "float32")
    assert np.isfinite(y).all()


def test_cross_entropy_with_chunks_that_overlap():
    numbers = np.random.default_rng(0)
    hidden, table = (numbers.normal(size=(n, 8)).astype(np.float32) for n in (6, 50))
    bias, targets = numbers.normal(size=50).astype(np.float32), numbers.integers(50, size=6)
    scale = jnp.arange(1.0, 7.0)
    results = []
    for function in (lambda *own: cross_entropy(*own, 16, 0), plain_cross_entropy):

        def total(*own, function=function):
            return (function(*own, targets) * scale).sum()

        compiled = jax.jit(jax.value_and_grad(total, (0, 1, 2)))
        results.append(compiled(hidden, table, bias))
    assert_equal(*results)


@pytest.mark.parametrize("dimension", [8, 128, 768])
def test_items_of_equal_vectors_all_count_against_the_target(dimension):
    """Their logits differ by rounding, because the target's is a product of its own."""
    numbers = np.random.default_rng(0)
    table = np.tile(numbers.normal(size=dimension), (500, 1)).astype(np.float32)
    table[400:] *= -1
    hidden = numbers.normal(size=(300, dimension)).astype(np.float32)
    bias, targets = np.full(500, 2.5, np.float32), numbers.integers(400, size=300)
    ranks = np.asarray(jax.jit(score)(hidden, table, bias, targets)[1])
    likelier = hidden @ table[0] > 0
    np.testing.assert_array_equal(ranks, np.where(likelier, 400, 500))


def test_both_dropouts_keep_the_mean_and_drop_the_rate():
    x = jnp.ones((200, 500))
    for config in forms(dataclasses.replace(SMALL, dropout=0.3)):
        module = Dropout(config)
        assert (module.apply({}, x) == x).all()
        apply, keys = jax.jit(module.apply), (jax.random.key(seed) for seed in (0, 1))
        one, other = (np.asarray(apply({}, x, rngs={"dropout": key})) for key in keys)
        assert abs(float((one == 0).mean()) - 0.3) < 4 * (0.3 * 0.7 / x.size) ** 0.5
        np.testing.assert_allclose(one[one > 0], 1 / 0.7, rtol=1e-6)
        assert 0.4 < float((one != other).mean()) < 0.44  # 2 * 0.3 * 0.7


@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_attention_dropout_drops_weights_only_with_a_key(kernels):
    one_head = dataclasses.replace(SMALL, heads=1)
    config = dataclasses.replace(one_head, attention_dropout=0.5, kernels=kernels)
    x, mask = jnp.ones((2, 6, 16)), jnp.ones((2, 6), bool)
    apply, without = (jax.jit(Attention(each).apply) for each in (config, one_head))
    params = jax.jit(Attention(config).init)(jax.random.key(0), x, x, mask)
    plain = apply(params, x, x, mask)
    np.testing.assert_allclose(plain, without(params, x, x, mask), atol=1e-5)
    # All values are equal, so each of the six kept weights adds a third of the value.
    dropped = apply(params, x, x, mask, rngs={"dropout": jax.random.key(0)})
    out = params["params"]["out"]["bias"]
    ratio = (dropped - out) / (plain - out)
    sums = np.unique(np.round(np.asarray(ratio) * 3, 3))
    assert set(sums.tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
    assert len(sums) > 2


@pytest.mark.parametrize("positions", [256, 3])
def test_long_texts_are_read_by_turns_where_nothing_is_learnt(positions, monkeypatch):
    config = dataclasses.replace(SMALL, heads=4)
    x = jax.random.normal(jax.random.key(0), (2, 256, 16))
    mask = jnp.arange(256) < jnp.array([[200], [256]])
    queries, module = x[:, :positions], Attention(config)
    params = jax.jit(module.init)(jax.random.key(1), queries, x, mask)

    def traced(rngs):
        read = jax.make_jaxpr(lambda x: module.apply(params, queries, x, mask, rngs=rngs))
        return str(read(x))

    assert "scan" in traced({})
    assert "scan" not in traced({"dropout": jax.random.key(2)})
    whole = Attention(dataclasses.replace(config, kernels="plain"))
    expected = jax.jit(whole.apply)(params, queries, x, mask)
    head = positions * 256
    # What is read at once: one head of one example, one of both, two of both, and all four.
    for at_once, part in ((1, "1,1"), (2 * head, "2,1"), (4 * head, "2,2"), (2**30, "2,4")):
        monkeypatch.setattr(attention, "WEIGHTS_AT_ONCE", at_once)
        shapes = set(re.findall(rf"f32\[(\d,\d),{positions},256\]", traced({})))
        assert shapes == {part}
        # A function of its own, so that it is traced anew.
        found = jax.jit(lambda params: module.apply(params, queries, x, mask))(params)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_weights_of_bfloat16_vectors_are_those_of_float32_products():
    """Logits near 20 that are rounded to bfloat16 would change a weight by some per cent."""
    numbers = np.random.default_rng(1)
    query, key = jnp.asarray(2 * numbers.normal(size=(2, 2, 64, 4, 32)), jnp.bfloat16)
    mask = np.ones((2, 1, 64), bool)
    weights, exact = (
        exponentials / sums[..., None]
        for exponentials, sums in (
            attention.softmax_parts(query, key, mask, None),
            attention.softmax_parts(query.astype("f"), key.astype("f"), mask, None),
        )
    )
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights, exact, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("dtype", "within"), [("float32", 1e-6), ("bfloat16", 2**-7)])
def test_stored_exponentials_give_what_the_softmax_reads(dtype, within):
    numbers = np.random.default_rng(2)
    query, key, value = jnp.asarray(numbers.normal(size=(3, 2, 40, 4, 8)), dtype)
    mask = numbers.random((2, 40, 40)) < 0.7
    bias = numbers.normal(size=(4, 40, 40)).astype("f")
    found = jax.jit(attention.read_stored)(query, key, value, mask, bias)
    exact = jax.jit(attention.softmax_read)(
        query.astype("f"), key.astype("f"), value.astype("f"), mask, bias
    )
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype("f"), exact, atol=within)
