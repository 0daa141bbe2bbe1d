"""Context replacement: how much is replaced and by what, and that devices change nothing."""

import contextlib

import jax
import numpy as np
import pytest

from cbert.data import context_replacement
from cbert.data.context_replacement import replace_features
from cbert.errors import UserError
from cbert.training import config as config_lib
from cbert.training import run as run_lib
from tests.conftest import small
from tests.steps import flat, ones, steps

KEY = jax.random.key(3)
ROWS = 20_000
# Values 3, 4 and 5 are in half, three tenths and one fifth of the training examples.
FRACTIONS = {3: 0.5, 4: 0.3, 5: 0.2}
SAMPLE = {
    "day": np.repeat([3, 4, 5], [50, 30, 20]).astype(np.int32)[:, None],
    "age": np.stack([np.ones(100), np.arange(100)], axis=1).astype(np.float32),
}
CONTEXT = {
    "day": np.full((ROWS, 1), 9, np.int32),
    "age": np.full((ROWS, 2), -1, np.float32),
}


def replaced(rate, indices=None):
    indices = np.arange(ROWS) if indices is None else indices
    part = {name: rows[indices] for name, rows in CONTEXT.items()}
    shown = jax.jit(replace_features, static_argnums=(4, 5))(
        KEY, part, SAMPLE, indices, ROWS, rate
    )
    return {name: np.asarray(rows) for name, rows in shown.items()}


def deviation(fraction, count=ROWS):
    return (fraction * (1 - fraction) / count) ** 0.5


def test_the_fraction_and_the_distribution_of_what_is_replaced():
    shown = replaced(0.3)
    changed = {name: (shown[name] != CONTEXT[name]).all(axis=1) for name in CONTEXT}
    for name, rows in changed.items():
        assert abs(rows.mean() - 0.3) < 4 * deviation(0.3), name
    # Features are replaced independently, each by a whole row of its own.
    assert abs((changed["day"] & changed["age"]).mean() - 0.09) < 4 * deviation(0.09)
    days = shown["day"][changed["day"], 0]
    for value, fraction in FRACTIONS.items():
        assert abs((days == value).mean() - fraction) < 4 * deviation(fraction, len(days))
    ages = shown["age"][changed["age"]]
    assert (ages[:, 0] == 1).all()
    counts = np.bincount(ages[:, 1].astype(int), minlength=100)
    assert counts.min() > 0
    expected = len(ages) / 100  # Chi-squared of 99 degrees has mean 99, deviation 14.
    assert ((counts - expected) ** 2 / expected).sum() < 99 + 5 * 14
    both = changed["day"] & changed["age"]
    together = np.corrcoef(shown["day"][both, 0], shown["age"][both, 1])[0, 1]
    assert abs(together) < 4 / both.sum() ** 0.5


def test_a_replacement_depends_on_the_index_alone():
    whole = replaced(0.4)
    for part in np.split(np.arange(ROWS), 4):
        for name, rows in replaced(0.4, part).items():
            np.testing.assert_array_equal(rows, whole[name][part])


def test_the_sample_is_the_split_or_rows_all_over_it(monkeypatch):
    columns = {"day": np.arange(1000)[:, None]}
    np.testing.assert_array_equal(context_replacement.sample(columns)["day"], columns["day"])
    monkeypatch.setattr(context_replacement, "MOST_ROWS", 11)
    few = context_replacement.sample(columns)["day"][:, 0]
    assert few.tolist() == [0, 99, 199, 299, 399, 499, 599, 699, 799, 899, 999]


@pytest.mark.soak
def test_training_replaces_in_every_step_and_from_every_source(data_dir, schema):
    """Batches from memory and from disk give the same parameters; without a rate, others."""
    chosen = {"data__dir": data_dir, "model__layers": 1, "model__dropout": 0.0}
    parameters = [
        flat(steps(small(**chosen, **own), schema, 2)[0].params)
        for own in (
            {"train__context_replacement": 0.9},
            {"train__context_replacement": 0.9, "data__source": "stream"},
            {},
        )
    ]
    memory, stream, without = parameters
    for name, leaf in memory.items():
        np.testing.assert_array_equal(leaf, stream[name])
    assert (
        np.abs(
            memory["conditioning/state/out/kernel"] - without["conditioning/state/out/kernel"]
        ).max()
        > 1e-4
    )


def test_without_a_rate_nothing_is_drawn_or_held(data_dir, schema, monkeypatch):
    """The step is traced, not compiled."""

    def drawn(*arguments):
        raise AssertionError("a replacement was drawn")

    monkeypatch.setattr("cbert.model.parameter_tree.initialize", ones)
    monkeypatch.setattr("cbert.training.step.replace_features", drawn)
    for rate in (0.0, 0.5):
        config = small("gs", data__dir=data_dir, train__context_replacement=rate)
        made = run_lib.set_up(config, schema)
        assert ("context_sample" in made.resident["constants"]) == (rate > 0)
        fed, _, length = made.source.feed(0, 1)
        arguments = (made.state, made.resident, fed, made.indices, made.key)
        refusal = pytest.raises(AssertionError, match="was drawn")
        with refusal if rate else contextlib.nullcontext():
            jax.eval_shape(lambda *own, m=made, n=length: m.step(*own, n), *arguments)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(UserError, match="it must be at least 0 and below 1"):
        config_lib.check(small(train__context_replacement=rate))
