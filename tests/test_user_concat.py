"""The context beside the items: [C] with a matrix of two blocks."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.model import attention
from cbert.model.conditioning.user_concat import UserConcatConfig, context_width
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from tests.model_costs import assert_traced
from tests.models import SMALL, batch, build, encode, made
from tests.test_counts import PAPER, SCHEMA


@pytest.mark.soak
def test_it_is_concat_with_a_matrix_of_two_blocks(schema, train_split):
    codes, context = batch(train_split)
    model, params = made(schema, "user_concat", fraction=0.25)
    own = params["conditioning"]
    assert own["items"]["kernel"].shape == (16, 12)
    assert own["context"]["kernel"].shape == (schema.context_width, 4)
    # [C] projects c to D entries, of which the last four are ours, and then multiplies [x; c].
    wide = {
        "kernel": jnp.pad(own["context"]["kernel"], ((0, 0), (12, 0))),
        "bias": jnp.pad(own["context"]["bias"], (12, 0)),
    }
    kernel = jnp.zeros((32, 16)).at[:16, :12].set(own["items"]["kernel"])
    kernel = kernel.at[28:, 12:].set(jnp.eye(4))
    out = {"kernel": kernel, "bias": jnp.pad(own["items"]["bias"], (0, 4))}
    concat = {**params, "conditioning": {"context": wide, "out": out}}
    np.testing.assert_allclose(
        encode(model, params, codes, context),
        encode(build(schema, "c"), concat, codes, context),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("fraction", "width"), [(0.5, 8), (0.26, 4), (0.3, 5), (0.01, 1), (0.99, 15), (0.9, 14)]
)
def test_the_context_fills_its_fraction_and_leaves_the_item_some(fraction, width):
    assert context_width(16, UserConcatConfig(fraction)) == width


def test_a_width_of_one_has_no_room_for_both(schema):
    config = dataclasses.replace(SMALL, dimension=1, heads=1)
    message = "model.dimension is 1, .*; set model.dimension to at least 2"
    with pytest.raises(UserError, match=message):
        table_1_count(build(schema, "user_concat", config))


def test_counts_and_operations(schema, monkeypatch):
    for fraction, d in ((0.5, 64), (0.125, 16)):
        model = build(SCHEMA, "user_concat", ModelConfig(), fraction=fraction)
        own = 128 * (128 - d) + 128 + 736 * d
        assert table_1_count(model) == PAPER["none"] + own
    monkeypatch.setattr(attention, "SHORT", 0)
    assert_traced(build(schema, "user_concat", fraction=0.25))


@pytest.mark.soak
def test_as_plain_it_adds_the_two_beside_each_other(schema, train_split):
    codes, context = batch(train_split, rows=2)
    config = dataclasses.replace(SMALL, start_as_plain=True)
    model, params = made(schema, "user_concat", config)

    def begun(module):
        x, _ = module.embedding(codes)
        c = module.embed_context(context)
        return x, c.vector, module.conditioning.begin(x, codes >= 0, c)[0]

    x, c, after = model.encoder.apply({"params": params}, method=begun)
    own = params["conditioning"]
    item = x @ own["items"]["kernel"] + own["items"]["bias"]
    user = (c @ own["context"]["kernel"] + own["context"]["bias"])[:, None]
    both = jnp.concatenate([item, jnp.broadcast_to(user, item.shape)], axis=-1)
    np.testing.assert_allclose(after, x + both, atol=1e-5)
