"""The kernel that stores no weights, run by XLA: it does what the plain form does."""

import dataclasses
import functools
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import parallel
from cbert.model import attention, flash_attention, hashing
from cbert.training import config as config_lib
from cbert.training import memory
from tests.conftest import small, some
from tests.models import SMALL

attend = functools.partial(flash_attention.attend, interpret=True)
# Examples, query positions, positions, heads, width of a head.
ONE_BLOCK, SEVERAL, LAST_BLOCK = (2, 48, 48, 2, 16), (2, 150, 130, 2, 16), (3, 5, 70, 1, 32)


def arrays(shape, seed=0):
    """Queries, keys with values, and which keys are shown: all but some of the last example."""
    examples, positions, length, heads, width = shape
    random = np.random.default_rng(seed)
    query = random.normal(size=(examples, positions, heads, width))
    key_value = random.normal(size=(examples, length, 2, heads, width))
    shown = np.ones((examples, length), bool)
    shown[-1, length // 3 :] = False
    return jnp.float32(query), jnp.float32(key_value), jnp.asarray(shown)


def plain(query, key_value, shown, keys, rate):
    """The form that stores its weights, with the same ones dropped."""

    def drop(weights):
        rows = jnp.arange(weights[..., 0].size, dtype=jnp.uint32)
        columns = jnp.arange(weights.shape[-1], dtype=jnp.uint32)
        kept = hashing.kept_in_rows(hashing.hashes(rows, *keys), columns, rate)
        return jnp.where(kept.reshape(weights.shape), weights / (1 - rate), 0)

    key, value = key_value[:, :, 0], key_value[:, :, 1]
    return attention.softmax_read(query, key, value, shown[:, None], None, drop)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("shape", [ONE_BLOCK, SEVERAL, LAST_BLOCK])
def test_results_and_gradients_are_those_of_the_plain_form(shape, rate):
    query, key_value, shown = arrays(shape)
    keys = jnp.stack(hashing.keys(jnp.uint32(7), "name"))
    gradient = np.random.default_rng(1).normal(size=query.shape).astype(np.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def results(form, query, key_value):
        read, pull = jax.vjp(lambda q, kv: form(q, kv, shown, keys, rate), query, key_value)
        return read, pull(gradient)

    read, gradients = results(attend, query, key_value)
    expected, expected_gradients = results(plain, query, key_value)
    np.testing.assert_allclose(read, expected, atol=2e-6)
    for own, theirs in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(own, theirs, atol=1e-5)


def test_each_seed_of_a_program_drops_its_own_weights():
    query, key_value, shown = arrays(ONE_BLOCK)
    keys = jnp.stack([jnp.stack(hashing.keys(jnp.uint32(seed), "name")) for seed in (1, 2)])

    def gradient(query, keys):
        return jax.grad(lambda query: attend(query, key_value, shown, keys, 0.5).sum())(query)

    queries = jnp.stack([query, query])
    both = jax.vmap(gradient)(queries, keys)
    np.testing.assert_allclose(both[1], gradient(query, keys[1]), atol=1e-6)
    assert np.abs(both[0] - both[1]).max() > 0.01


def test_each_row_keeps_other_columns():
    keys = hashing.keys(jnp.uint32(3), "name")
    rows = hashing.hashes(jnp.arange(1000, dtype=jnp.uint32), *keys)
    columns = jnp.arange(200, dtype=jnp.uint32)
    dropped = 1.0 - np.asarray(hashing.kept_in_rows(rows, columns, 0.3))
    assert abs(dropped.mean() - 0.3) < 4 * (0.21 / dropped.size) ** 0.5
    # Neighbours in a row, and in a column, are both dropped as often as chance has it.
    for one, other in ((dropped[:, 1:], dropped[:, :-1]), (dropped[1:], dropped[:-1])):
        assert abs((one * other).mean() - 0.09) < 4 * (0.09 * 0.91 / one.size) ** 0.5


@pytest.fixture
def on_gpu():
    """A GPU with units for bfloat16, whose kernels XLA runs on this processor."""
    with (
        mock.patch.object(parallel, "platform", return_value="gpu"),
        mock.patch.object(parallel, "has_bfloat16_units", return_value=True),
        mock.patch.object(flash_attention, "attend", attend),
    ):
        yield


CONFIG = dataclasses.replace(SMALL, dimension=32, heads=2, dtype="bfloat16")


def layer_inputs():
    x = np.random.default_rng(0).normal(size=(2, 20, 32))
    mask = np.arange(20) < np.array([[20], [11]])
    return jnp.asarray(x, jnp.bfloat16), jnp.asarray(mask)


def test_the_layer_is_the_plain_one_with_the_same_parameters(on_gpu):
    x, mask = layer_inputs()
    layer = attention.Attention(CONFIG)
    params = layer.init(jax.random.key(0), x, x, mask)
    other = attention.Attention(dataclasses.replace(CONFIG, kernels="plain"))
    assert "pallas_call" in str(jax.make_jaxpr(layer.apply)(params, x, x, mask))
    assert "pallas_call" not in str(jax.make_jaxpr(other.apply)(params, x, x, mask))
    expected = other.apply(params, x, x, mask)
    np.testing.assert_allclose(
        jnp.float32(layer.apply(params, x, x, mask)), jnp.float32(expected), atol=0.02
    )


def test_dropout_has_the_mean_of_none(on_gpu):
    x, mask = layer_inputs()
    layer = attention.Attention(dataclasses.replace(CONFIG, attention_dropout=0.4))
    params = layer.init(jax.random.key(0), x, x, mask)

    def apply(key):
        return jnp.float32(layer.apply(params, x, x, mask, rngs={"dropout": key}))

    draws = np.asarray(jax.jit(jax.vmap(apply))(jax.random.split(jax.random.key(1), 100)))
    spread = draws.std(axis=0)
    assert spread.max() > 0.05
    difference = draws.mean(axis=0) - np.float32(layer.apply(params, x, x, mask))
    assert (np.abs(difference) < 5 * spread / 100**0.5 + 0.02).all()


@pytest.mark.parametrize("other", some(["bias", "mask", "width", "dtype", "library"]))
def test_other_attention_takes_the_plain_form(on_gpu, other):
    x, mask = layer_inputs()
    config, bias = CONFIG, None
    if other == "bias":
        bias = jnp.ones((2, 20, 20))
    if other == "mask":
        mask = mask[:, None] & jnp.tri(20, dtype=bool)
    if other == "width":
        config = dataclasses.replace(CONFIG, heads=4)
    if other == "dtype":
        config = dataclasses.replace(CONFIG, dtype="float32")
    layer = attention.Attention(config)
    missing = {"cbert.model.flash_attention": None} if other == "library" else {}
    with mock.patch.dict(sys.modules, missing):
        attention._flash_attention.cache_clear()
        apply = functools.partial(layer.init, jax.random.key(0))
        program = str(jax.make_jaxpr(apply)(x, x, mask, bias))
    attention._flash_attention.cache_clear()
    assert "pallas_call" not in program


def test_weights_that_are_not_stored_need_no_memory(schema, on_gpu):
    config = small("none", model__dimension=32, model__heads=2, model__dtype="bfloat16")
    config_lib.check(config)

    assert memory._attention(config, 1000, 2000, 300).size == 0
    config.model.kernels = "plain"
    assert memory._attention(config, 1000, 2000, 300).size == 4 * 1000 * 2 * 300 * 2000


@pytest.mark.parametrize(
    ("capability", "expected"),
    [("9.0", True), ("7.5", False), ("gfx90a", False), (None, False)],
)
def test_units_for_bfloat16_are_those_of_newer_gpus(capability, expected):
    device = mock.Mock(spec=["compute_capability"] if capability else [])
    if capability:
        device.compute_capability = capability
    with mock.patch.object(parallel, "first_device", return_value=device):
        assert parallel.has_bfloat16_units() is expected
