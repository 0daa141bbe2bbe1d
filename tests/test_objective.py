"""The objective, at once and in chunks, against the plain one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.model import sampled_softmax
from cbert.model.cross_entropy import cross_entropy
from cbert.model.scoring import least_tied, score
from cbert.ranks import count_ahead


def case(queries=7, items=50, size=6, seed=0):
    random = np.random.default_rng(seed)
    hidden = random.standard_normal((queries, size), np.float32) * 3
    table = random.standard_normal((items, size), np.float32)
    bias = random.standard_normal(items, np.float32)
    return hidden, table, bias, random.integers(items, size=queries)


@jax.jit
def plain(hidden, table, bias, targets):
    logits = hidden @ table.T + bias
    return -jax.nn.log_softmax(logits)[jnp.arange(len(targets)), targets]


@pytest.mark.parametrize("spread", [1, 200])
@pytest.mark.parametrize(("chunk", "whole"), [(1, 0), (7, 0), (25, 0), (4096, 2**26)])
def test_loss_and_gradients_equal_the_plain_form(chunk, whole, spread):
    """All logits may be made at once or in chunks that overlap; biases may lie far apart."""
    hidden, table, bias, targets = case()
    bias *= spread
    weights = np.linspace(0, 2, len(targets), dtype=np.float32)

    def weighted(function, *chunks):
        """The losses, and the gradients of their weighted sum."""

        def total(*arrays):
            losses = function(*arrays, targets, *chunks)
            return (losses * weights).sum(), losses

        gradients, losses = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(
            hidden, table, bias
        )
        return losses, gradients

    losses, gradients = weighted(cross_entropy, chunk, whole)
    expected_losses, expected = weighted(plain)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5, atol=1e-6)
    for one, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk_size", [7, 30, None])
def test_score_ranks_among_all_items(chunk_size):
    hidden, table, bias, targets = case(queries=20)
    logits = np.asarray(hidden @ table.T + bias)
    own = logits[np.arange(20), targets]
    log_probability, rank = score(hidden, table, bias, targets, chunk_size)
    assert rank.tolist() == ((logits > own[:, None]).sum(1) + 1).tolist()
    np.testing.assert_allclose(
        log_probability, -plain(hidden, table, bias, targets), rtol=1e-5, atol=1e-5
    )


def test_ties_count_against_the_target():
    hidden = np.ones((3, 1), np.float32)
    table = np.array([[2.0], [1.0], [1.0], [1.0], [0.0]], np.float32)
    _, rank = score(hidden, table, np.zeros(5, np.float32), np.array([0, 2, 4]), 2)
    assert rank.tolist() == [1, 4, 5]
    # A logit that is no number is ahead, and every item is ahead of one.
    logits = np.tile(np.array([np.nan, 2.0, 0.0], np.float32), (2, 1))
    own = np.array([1.0, np.nan], np.float32)
    assert count_ahead(logits, own, np.ones((2, 3), bool)).tolist() == [2, 3]


def test_what_counts_as_equal_to_the_target_by_hand():
    """Vectors of lengths 1 and 5 and a bias of -11 may round by four times 2^-23 of 16."""
    hidden, table = np.eye(1, 2, dtype=np.float32), np.array([[3.0, 4.0]], np.float32)
    bias, own = np.array([-11.0], np.float32), np.zeros(1, np.float32)
    tied = least_tied(hidden, table, bias, np.array([0]), own)
    assert tied.tolist() == [-(2.0**-17)]


@pytest.mark.parametrize("items", [2**24, 2**24 + 4])
def test_every_item_ahead_is_counted(items):
    """float32 holds the first number, and not the second one."""
    logits = np.ones((1, items), np.float32)
    logits[0, 0] = 0
    ahead = jax.jit(count_ahead)(logits, np.array([0.5], np.float32), logits >= 0)
    assert (ahead.dtype, ahead.tolist()) == (np.int32, [items - 1])


def test_large_logits_do_not_overflow():
    hidden = np.full((1, 1), 1e4, np.float32)
    table = np.array([[1.0], [0.0]], np.float32)
    bias = np.zeros(2, np.float32)
    for whole in (0, 2):
        assert cross_entropy(hidden, table, bias, np.array([1]), 1, whole) == pytest.approx(1e4)
        assert cross_entropy(hidden, table, bias, np.array([0]), 1, whole) == 0


COUNTS = (50, 9, 0, 3, 3, 20, 1, 1, 7, 2)


def test_sampled_items_are_drawn_in_proportion_to_counts():
    cumulative = sampled_softmax.cumulative(COUNTS)
    assert cumulative.tolist() == np.cumsum(np.array(COUNTS) + 1).tolist()
    assert sampled_softmax.cumulative((2**31 - 2,)).tolist() == [2**31 - 1]
    with pytest.raises(UserError, match=r"the schema's counts sum to 2\*\*31 or more"):
        sampled_softmax.cumulative((2**31 - 2, 0))
    drawn = sampled_softmax.draw(jax.random.key(0), cumulative, 20_000)
    frequencies = np.bincount(drawn, minlength=10) / 20_000
    expected = (np.array(COUNTS) + 1) / 106
    np.testing.assert_allclose(frequencies, expected, atol=4 * np.sqrt(0.25 / 20_000))
    logarithms = sampled_softmax.log_expected(cumulative, jnp.arange(10), 32)
    np.testing.assert_allclose(np.exp(logarithms), 32 * expected, rtol=1e-5)


def test_the_sampled_normalizer_is_right_on_average_and_its_logarithm_low():
    hidden, table, bias, targets = case(queries=3, items=10, size=4)
    hidden, table, bias = (jnp.asarray(part) for part in (hidden / 3, table, bias))
    cumulative = jnp.asarray(sampled_softmax.cumulative(COUNTS))
    full = np.asarray(cross_entropy(hidden, table, bias, targets))

    def losses(number):
        def one(key):
            drawn = sampled_softmax.draw(key, cumulative, number)
            return sampled_softmax.sampled_cross_entropy(
                hidden, table, bias, targets, drawn, cumulative
            )

        return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 4000)))

    few, many = losses(8), losses(2048)
    # exp(loss) is the normalizer over exp(own logit).
    error = np.exp(few).std(axis=0) / np.sqrt(4000)
    assert (np.abs(np.exp(few).mean(axis=0) - np.exp(full)) < 4 * error).all()
    assert (few.mean(axis=0) < full - 0.01).all()
    # The bias falls as one over the sample's size, here by 256.
    left = np.abs(many.mean(axis=0) - full) / (full - few.mean(axis=0))
    assert (left < 1 / 50).all(), left
