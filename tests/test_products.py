"""Products of bfloat16 with float32 sums, and what is made of them."""

import math
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import parallel
from cbert.model import cross_entropy as kernels
from cbert.model import products
from cbert.model.cross_entropy import cross_entropy, plain_cross_entropy
from cbert.model.gelu import gelu

TAU = 2 * math.pi
PLATFORMS = ["cpu", "gpu", "tpu"]  # The forms of each can run on any.


def rounded(*shape, seed=0):
    """Random numbers that bfloat16 holds exactly, as float64."""
    drawn = np.random.default_rng(seed).normal(size=shape)
    return drawn.astype(jnp.bfloat16).astype(np.float64)


def of_bfloat16(*arrays):
    return [array.astype(jnp.bfloat16) for array in arrays]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_sums_and_gradients_are_those_of_float64(monkeypatch, leading, transposed, platform):
    """The sums of 300 products keep float32's digits; a gradient is rounded once, by 2^-9."""
    monkeypatch.setattr(parallel, "platform", lambda: platform)
    x, weights = rounded(*leading, 5, 300), rounded(*leading, 5, 7, seed=1)
    y = rounded(*leading, *((7, 300) if transposed else (300, 7)), seed=2)

    def total(one, other):
        return (products.product(one, other, transposed) * weights).sum()

    inputs = of_bfloat16(x, y)
    other = y.swapaxes(-1, -2) if transposed else y
    # A function of this test alone, because JAX keeps what it traced on another platform.
    result = jax.jit(lambda *own: products.product(*own, transposed))(*inputs)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, x @ other, rtol=1e-5, atol=1e-5)
    d_x, d_y = jax.jit(jax.grad(total, (0, 1)))(*inputs)
    np.testing.assert_allclose(
        d_x.astype(float), weights @ other.swapaxes(-1, -2), rtol=2**-8, atol=1e-5
    )
    expected = x.swapaxes(-1, -2) @ weights
    expected = expected.swapaxes(-1, -2) if transposed else expected
    np.testing.assert_allclose(d_y.astype(float), expected, rtol=2**-8, atol=1e-5)


def test_vmap_gives_each_its_own():
    x, y = of_bfloat16(rounded(3, 4, 6), rounded(3, 6, 2, seed=1))
    together = jax.jit(jax.vmap(products.product))(x, y)
    alone = jax.jit(products.product)
    for one, a, b in zip(together, x, y, strict=True):
        np.testing.assert_array_equal(one, alone(a, b))


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradient_of_a_kernel_is_not_rounded(monkeypatch, transposed, platform):
    """Off a CPU the products that `affine` makes are rounded before their bias is added."""
    monkeypatch.setattr(parallel, "platform", lambda: platform)
    x, weights = rounded(40, 6), rounded(40, 8, seed=1)
    kernel, bias = rounded(6, 8, seed=2) + 2**-12, rounded(8, seed=3)
    inputs = x.astype(jnp.bfloat16)

    def form(of_x, *own):
        if transposed:
            return products.affine_columns(of_x, *own).T
        return products.affine(of_x, *own)

    def total(of_kernel, of_bias, of_x=inputs):
        return (form(of_x, of_kernel, of_bias).astype(jnp.float32) * weights).sum()

    arrays = kernel.astype(np.float32), bias.astype(np.float32)
    stored = kernel.astype(jnp.bfloat16).astype(float)
    y = np.asarray(form(inputs, *arrays)).astype(float)
    first = 0 if platform == "cpu" or transposed else np.abs(x @ stored)
    assert (np.abs(y - (x @ stored + bias)) <= 2**-8 * (first + np.abs(y)) + 1e-5).all()
    gradients = jax.grad(total, (0, 1, 2))(*arrays, inputs)
    d_kernel, d_bias, d_x = map(np.asarray, gradients)
    np.testing.assert_allclose(d_x.astype(float), weights @ stored.T, rtol=2**-8, atol=1e-5)
    np.testing.assert_allclose(d_kernel, x.T @ weights, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d_bias, weights.sum(axis=0), rtol=1e-5, atol=1e-5)
    assert (d_kernel != d_kernel.astype(jnp.bfloat16)).any()


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("rows", [40, 5_000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_rows_are_float32(monkeypatch, dtype, rows, platform):
    monkeypatch.setattr(parallel, "platform", lambda: platform)
    x = (rounded(rows, 3) + 1).astype(jnp.dtype(dtype))
    total = jax.jit(lambda x: products.sum_rows(x))(x)
    assert total.dtype == jnp.float32
    expected = x.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="layouts are chosen for a CPU")
def test_all_matrices_are_stored_by_rows():
    """XLA takes a CPU's products of bfloat16 for these alone, where it stores no other form."""

    def total(x, kernel, bias, y):
        hidden = products.affine(x, kernel, bias)
        return products.product(hidden, y, True).sum() + products.product(hidden.T, x).sum()

    arrays = jnp.zeros((32, 16), jnp.bfloat16), jnp.zeros((16, 8)), jnp.zeros(8)
    arrays = *arrays, jnp.zeros((24, 8), jnp.bfloat16)
    compiled = jax.jit(jax.grad(total, (0, 1, 2, 3))).lower(*arrays).compile().as_text()
    stored = dict(re.findall(r"(%\S+) = (?:bf16|f32)\[\d+,\d+\]\{(\S+)\}", compiled))
    dots = re.findall(r"dot\((%\S+), (%\S+)\), lhs_contracting_dims=\{(\d)\}", compiled)
    assert len(dots) >= 8
    for left, right, contracted in dots:
        assert (stored.get(left), stored.get(right), contracted) == ("1,0", "1,0", "1")


@pytest.mark.parametrize(
    ("form", "options", "held"),
    [
        (cross_entropy, (7, 2**26), 2**20),
        (cross_entropy, (7, 2**26), 170),
        (cross_entropy, (7, 0), 2**20),
        (plain_cross_entropy, (), 2**20),
    ],
)
def test_losses_of_rounded_vectors_are_those_of_float32(monkeypatch, form, options, held):
    """With vectors and table rounded alike, the losses agree to float32 where no exponential
    was rounded, and the gradients to bfloat16's eight digits; in one part, six, chunks, or the
    plain form."""
    monkeypatch.setattr(kernels, "IN_CACHE", held)
    hidden, table = rounded(20, 16), rounded(50, 16, seed=1)
    bias, targets = rounded(50, seed=2), np.arange(20)

    def total(function, *options):
        def summed(*arrays):
            return function(*arrays, targets, *options).sum()

        return jax.jit(jax.value_and_grad(summed, (0, 1, 2)))

    arrays = [array.astype(np.float32) for array in (hidden, table, bias)]
    exact, expected = total(plain_cross_entropy)(*arrays)
    arrays[0] = arrays[0].astype(jnp.bfloat16)
    result, gradients = total(form, *options)(*arrays)
    gradients = [np.asarray(gradient) for gradient in gradients]
    np.testing.assert_allclose(result, exact, rtol=1e-6)
    assert [str(one.dtype) for one in gradients] == ["bfloat16", "float32", "float32"]
    for one, other in zip(gradients, expected, strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one.astype(float), other, atol=2**-8 * scale)
    assert (gradients[1] != gradients[1].astype(jnp.bfloat16)).any()


def test_gelu_of_bfloat16_is_rounded_once():
    """In bfloat16 throughout, 1 / sqrt(2) alone would be off by one part in a thousand."""
    x = np.linspace(-4, 4, 801).astype(jnp.bfloat16)
    exact = np.array([0.5 * v * math.erfc(-v / 2**0.5) for v in x.tolist()])
    half_a_digit = 2.0 ** (np.frexp(exact)[1] - 9)
    most = half_a_digit + 1e-7 * np.abs(np.asarray(x, float))  # That of Φ, which float32 has.
    assert (np.abs(np.asarray(gelu(x), float) - exact) <= most).all()
    by_jax = np.asarray(jax.nn.gelu(x, approximate=False), float)
    assert (np.abs(by_jax - exact) > most).mean() > 0.1


def test_the_slope_of_gelu_needs_x_alone():
    x = np.linspace(-6, 6, 25)
    expected = [0.5 * math.erfc(-v / 2**0.5) + v * math.exp(-v * v / 2) / TAU**0.5 for v in x]
    slope = jax.jit(jax.vmap(jax.grad(gelu)))(x)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-7)
    _, backward = jax.vjp(gelu, of_bfloat16(x)[0])
    (kept,) = jax.tree.leaves(backward)
    assert kept.dtype == jnp.bfloat16
    assert kept.shape == x.shape


def test_gelu_of_a_gpu_is_exact():
    x = np.linspace(-12, 12, 24001, dtype=np.float32)
    exact = x.astype(np.float64)
    cumulative = 0.5 * np.vectorize(math.erfc)(-exact / 2**0.5)
    density = np.exp(-exact * exact / 2) / (2 * np.pi) ** 0.5
    with mock.patch.object(parallel, "platform", return_value="gpu"):
        y, slope = jax.jit(jax.vmap(jax.value_and_grad(gelu)))(x)
    np.testing.assert_allclose(y, exact * cumulative, rtol=1e-6, atol=4e-7)
    np.testing.assert_allclose(slope, cumulative + exact * density, rtol=1e-6, atol=4e-7)
