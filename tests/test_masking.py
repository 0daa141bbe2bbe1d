"""Masking and context dropout: which items and features training does not show."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import tasks
from cbert.data.context_dropout import drop_features
from cbert.data.masking import Masking, expected_count, mask
from cbert.schema import (
    MASK_ITEM,
    MISSING_VALUE,
    PAD_ITEM,
    PAD_VALUE,
    UNKNOWN_ITEM,
    UNKNOWN_VALUE,
    Categorical,
    Schema,
    TokenFeature,
)
from cbert.tasks.base import Examples
from cbert.training import config as config_lib
from cbert.training import run as run_lib
from tests import text_predictors
from tests.conftest import small
from tests.text_data import small_text

KEY = jax.random.key(3)


def sets(rows=400, length=6, seed=0):
    random = np.random.default_rng(seed)
    codes = random.integers(20, size=(rows, length)).astype(np.int32)
    codes[random.random((rows, length)) < 0.2] = UNKNOWN_ITEM
    codes[:, 3:][np.arange(rows) % 2 == 0] = PAD_ITEM
    codes[0] = UNKNOWN_ITEM
    return codes


def apply_masking(masking, codes, indices=None):
    indices = np.arange(len(codes)) if indices is None else indices
    compiled = jax.jit(mask, static_argnums=(3, 4, 5))
    masked = compiled(KEY, jnp.asarray(codes[indices]), indices, len(codes), masking, 20)
    return [np.asarray(part) for part in masked]


def test_the_host_counts_as_many_masked_items_as_the_device():
    lengths = np.arange(513)
    for rate in np.arange(1, 101) / 100:
        masking = Masking("rate", float(rate))
        on_device = masking.count(jnp.asarray(lengths))
        np.testing.assert_array_equal(masking.count(lengths), on_device, str(rate))


def test_one_masks_exactly_one_real_item():
    codes = sets()
    seen, positions, targets, weights = apply_masking(Masking(), codes)
    real = (codes >= 0).any(1)
    assert positions.shape == (400, 1)
    assert weights[:, 0].tolist() == real.astype(float).tolist()
    assert ((seen == MASK_ITEM).sum(1) == real).all()
    rows = np.nonzero(real)[0]
    assert (codes[rows, positions[rows, 0]] == targets[rows, 0]).all()
    assert (seen[rows, positions[rows, 0]] == MASK_ITEM).all()
    assert ((seen != codes).sum(1) == real).all()


def test_one_masks_every_position_equally_often():
    codes = np.tile(np.arange(5, dtype=np.int32), (4000, 1))
    _, positions, _, _ = apply_masking(Masking(), codes)
    counts = np.bincount(positions[:, 0], minlength=5)
    assert np.abs(counts - 800).max() < 5 * np.sqrt(4000 * 0.2 * 0.8)


def test_rate_masks_a_rounded_fraction_and_at_least_one():
    codes = sets()
    masking = Masking("rate", 0.4)
    seen, _, _, weights = apply_masking(masking, codes)
    real = (codes >= 0).sum(1)
    expected = np.where(real > 0, np.maximum(np.floor(real * 0.4 + 0.5), 1), 0)
    assert ((seen == MASK_ITEM).sum(1) == expected).all()
    assert weights.sum(1).tolist() == expected.tolist()
    assert expected_count(codes, masking) == expected.mean()
    # More examples than are counted at once.
    many = np.repeat(codes, 200, axis=0)
    assert len(many) > 2**16
    assert expected_count(many, masking) == pytest.approx(expected.mean(), rel=1e-12)


def test_corruption_is_80_10_10():
    codes = np.tile(np.arange(5, dtype=np.int32), (8000, 1))
    seen, positions, targets, _ = apply_masking(Masking(corrupt=True), codes)
    shown = np.take_along_axis(seen, positions, 1)
    masked, kept = (shown == MASK_ITEM).mean(), (shown == targets).mean()
    # A random item of 20 is the right one in one of 20 cases.
    assert abs(masked - 0.8) < 0.014
    assert abs(kept - 0.105) < 0.014
    assert np.unique(shown).tolist() == [MASK_ITEM, *range(20)]


def test_masked_positions_depend_on_the_index_alone():
    codes = np.tile(np.arange(5, dtype=np.int32), (40, 1))
    whole = apply_masking(Masking(), codes)
    parts = [apply_masking(Masking(), codes, np.arange(n, n + 10)) for n in range(0, 40, 10)]
    for one, *others in zip(whole, *parts, strict=True):
        assert (one == np.concatenate(others)).all()


def test_a_dropped_feature_is_missing_or_unknown_at_its_rate(schema, train_split):
    rows = 300
    context = {name: jnp.asarray(column[:rows]) for name, column in train_split.context.items()}
    assert drop_features(KEY, context, np.arange(rows), rows, 0.0, schema) is context
    shown = drop_features(KEY, context, np.arange(rows), rows, 0.5, schema)
    changed = []
    for feature in schema.features:
        one, other = np.asarray(shown[feature.name]), np.asarray(context[feature.name])
        rows_changed = (one != other).any(1)
        changed.append(rows_changed.mean())
        if isinstance(feature, TokenFeature):
            assert set(one[rows_changed, 0]) == {MISSING_VALUE, UNKNOWN_VALUE}
            assert (one[rows_changed, 1:] == PAD_VALUE).all()
        else:
            assert (one[rows_changed] == 0).all()
    assert 0.4 < np.mean(changed) < 0.55


def test_each_feature_is_dropped_for_itself_and_by_the_index():
    rows, known = 20_000, UNKNOWN_VALUE + 1
    features = Categorical("day", 4, ("mon",)), Categorical("mood", 4, ("hot",))
    schema = Schema("set", 1, ("a",), (1,), features)

    def dropped(indices):
        context = {name: np.full((len(indices), 1), known) for name in ("day", "mood")}
        shown = drop_features(KEY, context, indices, rows, 0.3, schema)
        return np.concatenate([shown["day"], shown["mood"]], axis=1)

    def assert_fraction(are, fraction):
        error = np.sqrt(fraction * (1 - fraction) / rows)
        assert (np.abs(are.mean(axis=0) - fraction) < 4 * error).all()

    shown = dropped(np.arange(rows))
    for value, fraction in ((known, 0.7), (MISSING_VALUE, 0.15), (UNKNOWN_VALUE, 0.15)):
        assert_fraction(shown == value, fraction)
    assert_fraction((shown != known).all(axis=1), 0.09)
    np.testing.assert_array_equal(dropped(np.arange(60, 90)), shown[60:90])


@pytest.mark.parametrize("kind", ["sets", "texts"])
def test_tasks_drop_features_and_divide_by_their_constant(kind, schema):
    constant, config = {"expected_count": 0.25}, small(train__context_dropout=0.5)
    if kind == "texts":
        schema, constant = text_predictors.schema("tagging"), {"mean_weight": 0.25}
        config = small_text("tagging", "", train__context_dropout=0.5)
    task = tasks.create(config, config_lib.build_model(config, schema), schema)
    context = schema.encode_contexts([{"age": 30}] * 64)
    examples = Examples({"items": sets(64), "context": context}, {}, np.arange(64), 64)
    other = jax.random.key(4)
    batch = jax.jit(dataclasses.replace(task, **constant).batch)((KEY, other), examples)
    expected = drop_features(other, context, np.arange(64), 64, 0.5, schema)
    for name, column in expected.items():
        np.testing.assert_array_equal(batch["context"][name], column)
    assert 16 < (np.asarray(expected["age"]) != context["age"]).any(axis=1).sum() < 48
    assert batch["divisor"] == 16


def test_a_fraction_of_masks_that_is_not_used_is_pointed_out(data_dir, schema, capsys):
    said = "mask_rate is 0.3 and has no effect, because one item an example is masked; task."
    cases = (("one", 0.3, True), ("rate", 0.3, False), ("one", 0.15, False))
    for masking, rate, is_said in cases:
        config = small("none", data__dir=data_dir)
        config.task.masked_item.update({"masking": masking, "mask_rate": rate})
        run_lib.set_up(config, schema)
        assert (said in capsys.readouterr().err) == is_said
