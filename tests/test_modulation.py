"""FiLM, adaLN-Zero, MAG and injectors: their counts, equations and nesting."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cbert.data.synthetic import stylist
from cbert.errors import UserError
from cbert.model import conditioning
from cbert.model.attention import Attention
from cbert.model.config import ModelConfig
from cbert.model.layers import FNN
from cbert.model.parameter_tree import table_1_count
from cbert.schema import MASK_ITEM, PAD_ITEM, Categorical, Schema
from cbert.training import config as config_lib
from tests.conftest import small, some
from tests.models import SMALL, applied, batch, build, encode, initialized, made

NONE = 546432
STYLIST = stylist.schema(30_000, [])
FAMILY = ("film", "adaln_zero", "cross_attention", "mag", "injector")


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


# d = 128, four blocks, C = 736.
STATE = dense(736, 128) + dense(128, 128)
COUNTS = [
    ("film", {}, NONE + STATE + 4 * dense(128, 2 * 128)),
    ("film", {"shift": False, "after": "attention"}, NONE + STATE + 4 * dense(128, 128)),
    # Its norms learn nothing; those of [None] have scales and biases.
    (
        "adaln_zero",
        {},
        NONE - 8 * 256 + STATE + 4 * dense(128, 6 * 128) + dense(128, 2 * 128),
    ),
    ("mag", {}, NONE + 128 * 128 + dense(736, 128) + 736 * 128 + 128),
    (
        "injector",
        {},
        NONE + STATE + 4 * (dense(128, 2 * 16 + 32) + 128 * 16 + 2 * 16 * 32 + dense(16, 128)),
    ),
    (
        "injector",
        {"rank": 3, "bottleneck": 5},
        NONE + STATE + 4 * (dense(128, 2 * 3 + 5) + 128 * 3 + 2 * 3 * 5 + dense(3, 128)),
    ),
]


@pytest.mark.parametrize(("method", "options", "count"), COUNTS)
def test_counts(method, options, count):
    model = build(STYLIST, method, ModelConfig(), **options)
    assert table_1_count(model) == count


def test_a_low_rank_matches_the_count_of_gsu():
    """66 is the largest rank at which adaLN-Zero has no more parameters than [GSU]."""

    def formula(rank):
        maps = 5 * 128 * rank + 4 * dense(rank, 6 * 128) + dense(rank, 2 * 128)
        return NONE - 8 * 256 + STATE + maps

    model = build(STYLIST, "adaln_zero", ModelConfig(), rank=66)
    assert table_1_count(model) == formula(66)
    assert formula(66) < 921856 < formula(67)


def without(params, *more):
    return {name: x for name, x in params.items() if name not in ("conditioning", *more)}


@pytest.mark.soak
def test_film_that_only_shifts_is_gs(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "gs")
    own = params["conditioning"]
    modulation = {
        f"modulation_{layer}": {
            # The scale minus one is zero, and the shift is V g.
            name: jnp.concatenate([jnp.zeros_like(x), x], axis=-1)
            for name, x in own[f"value_{layer}"].items()
        }
        for layer in range(SMALL.layers)
    }
    film = {**params, "conditioning": {"state": own["state"], **modulation}}
    expected = encode(model, params, codes, context)
    chosen = {"after": "attention", "norm": True}
    got = encode(build(schema, "film", **chosen), film, codes, context)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    # Both forms that start as the plain model leave the norm out.
    plain = dataclasses.replace(SMALL, start_as_plain=True)
    expected = encode(build(schema, "gs", plain), params, codes, context)
    got = encode(build(schema, "film", plain, **chosen), film, codes, context)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.soak
@pytest.mark.parametrize("shift", [True, False])
def test_film_scales_and_shifts_the_output_of_a_block(schema, train_split, shift):
    codes, context = batch(train_split)
    plain = dataclasses.replace(SMALL, start_as_plain=True)
    model = build(schema, "film", plain, shift=shift)
    params = jax.tree.map(lambda x: x, initialized(model, 0))
    expected = encode(build(schema, "none"), without(params), codes, context)
    np.testing.assert_allclose(encode(model, params, codes, context), expected, atol=1e-5)
    bias = np.repeat([0.5, 2.0] if shift else [0.5], 16)
    params["conditioning"][f"modulation_{SMALL.layers - 1}"]["bias"] = bias
    got = encode(model, params, codes, context)
    np.testing.assert_allclose(got, 1.5 * expected + 2 * shift, rtol=1e-5, atol=1e-5)


def normed(x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def embedded(model, params, codes, context):
    """The items' embeddings `[B, L, D]` and the context vector `[B, C]`."""

    def embed(encoder):
        return encoder.embedding(codes)[0], encoder.embed_context(context).vector

    return applied(model, params, embed)


def test_at_its_start_adaln_zero_is_the_norm_of_the_embeddings(schema, train_split):
    codes, context = batch(train_split)
    model = build(schema, "adaln_zero")
    params = initialized(model, 0)
    x, _ = embedded(model, params, codes, context)
    np.testing.assert_allclose(encode(model, params, codes, context), normed(x), atol=1e-5)


def test_adaln_zero_by_hand(schema, train_split):
    """One block, from the equations."""
    config = dataclasses.replace(SMALL, layers=1)
    codes, context = batch(train_split)
    model, params = made(schema, "adaln_zero", config)
    own, block = params["conditioning"], params["blocks_0"]
    assert block.keys() == {"attention", "fnn"}
    x, vector = embedded(model, params, codes, context)
    state = FNN(config, 16).apply({"params": own["state"]}, vector)
    state = state / (1 + np.exp(-state))

    def vectors(name, parts):
        made = state @ own[name]["kernel"] + own[name]["bias"]
        return np.split(np.asarray(made)[:, None], parts, axis=-1)

    s1, b1, g1, s2, b2, g2 = vectors("modulation_0", 6)
    h = (1 + s1) * normed(x) + b1
    attention = {"params": block["attention"]}
    x = x + g1 * Attention(config).apply(attention, h, h, codes != PAD_ITEM)
    h = (1 + s2) * normed(x) + b2
    x = x + g2 * FNN(config, config.feed_forward).apply({"params": block["fnn"]}, h)
    scale, shift = vectors("modulation_1", 2)
    expected = (1 + scale) * normed(x) + shift
    np.testing.assert_allclose(encode(model, params, codes, context), expected, atol=1e-5)


@pytest.mark.soak
def test_a_low_rank_is_a_product_of_two_matrices(schema, train_split):
    codes, context = batch(train_split)
    low, params = made(schema, "adaln_zero", rank=3)
    own = dict(params["conditioning"])
    for index in range(SMALL.layers + 1):
        left, right = own.pop(f"reduced_{index}")["kernel"], own[f"modulation_{index}"]
        own[f"modulation_{index}"] = {**right, "kernel": left @ right["kernel"]}
    expected = encode(low, params, codes, context)
    full = {**params, "conditioning": own}
    got = encode(build(schema, "adaln_zero"), full, codes, context)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("method", some(("gs", *FAMILY), "adaln_zero"))
def test_what_is_zero_at_the_start_keeps_the_context_out(schema, train_split, method):
    """Whatever the other parameters are, so that such a model is the plain one exactly."""
    codes, context = batch(train_split)
    model, params = made(schema, method, dataclasses.replace(SMALL, start_as_plain=True))
    own = params["conditioning"]
    for name in own:
        if name.startswith(conditioning.METHODS[method].zero_is_plain):
            own[name] = jax.tree.map(jnp.zeros_like, own[name])
    expected = encode(build(schema, "none"), without(params), codes, context)
    np.testing.assert_allclose(encode(model, params, codes, context), expected, atol=1e-5)


MOOD = Schema("set", 1, ("red", "blue"), (1, 1), (Categorical("mood", 4, ("hot", "cold")),))


@pytest.mark.soak
@pytest.mark.parametrize("method", some(FAMILY, "cross_attention"))
def test_it_learns_what_only_the_context_shows(method):
    """The one item is masked, and follows from the one feature: without it, log 2 nats."""
    model = build(MOOD, method)
    codes, queries = np.full((2, 1), MASK_ITEM), np.zeros((2, 1), np.int32)
    context = MOOD.encode_contexts([{"mood": "hot"}, {"mood": "cold"}])
    params, adam = initialized(model, 0), optax.adam(1e-2)

    def loss(params):
        vectors, table, bias = model.apply({"params": params}, codes, context, queries)
        logits = vectors[:, 0] @ table.T + bias
        return -jax.nn.log_softmax(logits)[np.arange(2), np.arange(2)].mean()

    def step(carry, _):
        params, state = carry
        nats, gradient = jax.value_and_grad(loss)(params)
        updates, state = adam.update(gradient, state)
        return (optax.apply_updates(params, updates), state), nats

    start = params, adam.init(params)
    _, nats = jax.jit(lambda start: jax.lax.scan(step, start, length=60))(start)
    assert nats[0] > 0.5
    assert nats[-1] < 0.05


def test_options_are_checked(data_dir):
    for field, value, message in (
        ("film__after", "embedding", "model.film.after is 'embedding'"),
        ("mag__beta", 0.0, "model.mag.beta is 0.0"),
        ("injector__rank", 0, "model.injector.rank is 0"),
        ("adaln_zero__rank", -1, "model.adaln_zero.rank is -1"),
    ):
        method = field.split("__")[0]
        config = small(method, data__dir=data_dir, **{f"model__{field}": value})
        with pytest.raises(UserError, match=message):
            config_lib.check(config)
