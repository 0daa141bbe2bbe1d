"""The relatives of [GSU]: the forms of its update, its deep control, and the state that reads.

Legend: D = 16, three blocks, and so two updates.
"""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.model import attention
from cbert.model.config import ModelConfig
from cbert.model.parameter_tree import table_1_count
from cbert.schema import MASK_ITEM, PAD_ITEM, Schema
from cbert.training import config as config_lib
from tests.conftest import small, some
from tests.model_costs import assert_traced
from tests.models import SMALL, THREE_LAYERS, applied, batch, build, encode, made
from tests.test_counts import PAPER, SCHEMA

NORMS = ("after", "before", "none")


def count(method, config=None, **options):
    """The paper's count at its sizes."""
    return table_1_count(build(SCHEMA, method, config or ModelConfig(), **options))


def dense(p, x):
    return x @ np.asarray(p["kernel"]) + np.asarray(p["bias"])


def fnn(p, x):
    return dense(p["out"], np.maximum(dense(p["hidden"], x), 0))


def norm(x, p=None):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x if p is None else x * np.asarray(p["scale"]) + np.asarray(p["bias"])


def updated(own, layer, g, *others, norm_place="after", residual=False):
    """One update by hand."""
    scale = own.get(f"norm_{layer}")
    read = norm(g, scale) if norm_place == "before" else g
    y = fnn(own[f"fnn_{layer}"], np.concatenate([read, *others], axis=-1))
    y = y + g if residual else y
    return norm(y, scale) if norm_place == "after" else y


@pytest.mark.parametrize("norm_place", NORMS)
@pytest.mark.parametrize("residual", some([False, True], True))
def test_every_form_of_the_update_by_hand(schema, norm_place, residual):
    chosen = {"update_norm": norm_place, "update_residual": residual}
    model, params = made(schema, "gsu", THREE_LAYERS, **chosen)
    g = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)

    def update(module):
        return module.conditioning.update(1, None, None, g)

    after = applied(model, params, update)
    own = params["conditioning"]
    assert ("norm_1" in own) == (norm_place != "none")
    expected = updated(own, 1, g, norm_place=norm_place, residual=residual)
    np.testing.assert_allclose(after, expected, atol=1e-5)


@pytest.mark.parametrize("residual", [False, True])
def test_each_form_with_a_norm_has_the_papers_count(residual):
    for norm_place, missing in (("after", 0), ("before", 0), ("none", 3 * 256)):
        chosen = {"update_norm": norm_place, "update_residual": residual}
        assert count("gsu", **chosen) == PAPER["gsu"] - missing


@pytest.mark.parametrize(("was", "now"), [(True, "after"), (False, "none")])
def test_a_config_of_an_earlier_version_is_read(tmp_path, was, now):
    """It lacks the fields that were added later, and has others where they were then."""
    values = small("gsu").to_dict()
    values["model"]["gsu"]["update_norm"] = was
    del values["model"]["gsu_bi"], values["model"]["history"]
    del values["eval"]["masking"]
    values["model"]["method"] = "global_state_update"
    values["data"]["stylist_articles"] = 500
    values["train"] |= {
        **values["task"].pop("masked_item"),
        "mask_rate": 0.3,
        "masking": "rate",
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    masked = {"task__masked_item__masking": "rate", "task__masked_item__mask_rate": 0.3}
    expected = small("gsu", model__gsu__update_norm=now, **masked)
    assert config_lib.differences(config_lib.load(tmp_path), expected) == []
    del values["data"]["name"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"config\.json: data\.name is empty"):
        config_lib.load(tmp_path)


def context_vector(model, params, context):
    apply = functools.partial(model.apply, method=type(model).context_vector)
    return np.asarray(jax.jit(apply)({"params": params}, context))


def read_by(model, params, context):
    """The encoder of [GS] with the value and norm of a block, given the state by hand."""
    return fnn(params["conditioning"]["state"], context_vector(model, params, context))


def test_the_deep_state_by_hand_is_a_state_of_gs(schema, train_split):
    """[GS] with a state network that gives the deep state equals it."""
    codes, context = batch(train_split)
    model, params = made(schema, "gs_deep")
    own = params["conditioning"]
    g = read_by(model, params, context)
    for layer in range(SMALL.layers - 1):
        g = updated(own, layer, g)

    def begun(module):
        x, mask = jnp.zeros((len(codes), 1, 16)), jnp.ones((len(codes), 1), bool)
        return module.conditioning.begin(x, mask, module.embed_context(context))[2]

    np.testing.assert_allclose(applied(model, params, begun), g, atol=1e-5)
    # One context whose state [GS] has as the bias of its network: every block reads that.
    one = {name: np.repeat(column[:1], len(codes), axis=0) for name, column in context.items()}
    state = jax.tree.map(jnp.zeros_like, own["state"])
    state["out"]["bias"] = jnp.asarray(g[0])
    values = {name: p for name, p in own.items() if name.startswith("value")}
    plain = {**params, "conditioning": {"state": state, **values}}
    np.testing.assert_allclose(
        encode(model, params, codes, one),
        encode(build(schema, "gs"), plain, codes, one),
        atol=1e-5,
    )


def test_a_deep_state_has_the_parameters_of_gsu():
    assert count("gs_deep") == PAPER["gsu"]
    assert count("gs_deep", update_norm="none") == PAPER["gsu"] - 3 * 256
    one = ModelConfig(layers=1)
    assert count("gs_deep", one) == count("gs", one)


def without_read(params):
    """Parameters of gsu whose FNNs are those of gsu_bi without the rows that read r."""
    own = dict(params["conditioning"])
    for layer in range(SMALL.layers - 1):
        hidden = own[f"fnn_{layer}"]["hidden"]
        kernel = hidden["kernel"]
        params["conditioning"][f"fnn_{layer}"]["hidden"]["kernel"] = kernel.at[16:].set(0)
        smaller = {**hidden, "kernel": kernel[:16]}
        own[f"fnn_{layer}"] = {**own[f"fnn_{layer}"], "hidden": smaller}
    return {**params, "conditioning": {k: v for k, v in own.items() if "query" not in k}}


@pytest.mark.parametrize(
    ("pool", "norm_place"),
    [
        ("mean", "after"),
        *(
            pytest.param(*case, marks=pytest.mark.soak)
            for case in (("attention", "before"), ("sum", "none"))
        ),
    ],
)
def test_without_what_it_reads_the_state_is_that_of_gsu(schema, train_split, pool, norm_place):
    codes, context = batch(train_split)
    chosen = {"update_residual": True, "update_norm": norm_place}
    model, params = made(schema, "gsu_bi", pool=pool, **chosen)
    smaller = without_read(params)
    one = encode(model, params, codes, context)
    other = encode(build(schema, "gsu", **chosen), smaller, codes, context)
    np.testing.assert_allclose(one, other, atol=1e-5)


def pooled(pool, own, x, n, g):
    x = x[:n]
    if pool == "attention":
        logits = x @ dense(own["query_0"], g) / 4.0
        weights = np.exp(logits - logits.max())
        return (weights / weights.sum()) @ x / 4.0
    return x.sum(0) / (n if pool == "mean" else np.sqrt(n)) / 4.0


@pytest.mark.parametrize("pool", ["mean", "sum", "attention"])
def test_an_update_reads_the_visible_positions_alone(schema, pool):
    """By hand, and what stands at padding changes nothing."""
    model, params = made(schema, "gsu_bi", pool=pool)
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((3, 6, 16)).astype(np.float32)
    g = numbers.standard_normal((3, 16)).astype(np.float32)
    lengths = np.array([6, 4, 1])
    mask = np.arange(6) < lengths[:, None]

    def update(module, x):
        return module.conditioning.update(0, x, jnp.asarray(mask), jnp.asarray(g))

    after = applied(model, params, update, x)
    own = params["conditioning"]
    for row, n in enumerate(lengths):
        r = pooled(pool, own, x[row], n, g[row])
        expected = updated(own, 0, g[row], r, residual=True)
        np.testing.assert_allclose(after[row], expected, atol=1e-5)
    other = applied(model, params, update, np.where(mask[..., None], x, np.float32(7)))
    np.testing.assert_array_equal(after, other)


@pytest.mark.soak
def test_the_state_carries_the_items_to_other_items(schema, train_split):
    """With values and outputs of attention at zero, only the state can."""
    codes, context = batch(train_split)
    codes = codes.copy()
    codes[:, 0] = MASK_ITEM
    others = np.where((codes >= 0), (codes + 1) % 80, codes)
    change = {}
    for method in ("gsu_bi", "gsu"):
        model, params = made(schema, method)
        for layer in range(SMALL.layers):
            attention = params[f"blocks_{layer}"]["attention"]
            attention["out"] = jax.tree.map(jnp.zeros_like, attention["out"])
        one, other = (encode(model, params, each, context)[:, 0] for each in (codes, others))
        change[method] = np.abs(one - other).max()
    assert change["gsu"] == 0
    assert change["gsu_bi"] > 1e-3


@pytest.mark.soak
@pytest.mark.parametrize("method", ["gsu_bi", "gs_deep", "user_concat"])
def test_the_context_is_read_and_learns(schema, train_split, method):
    """A step along the gradient of the context's embeddings alone lowers the loss."""
    codes, context = batch(train_split)
    model, params = made(schema, method, dataclasses.replace(SMALL, layers=2))
    targets, queries = codes[:, 0], np.zeros((len(codes), 1), np.int32)
    codes = np.where(np.arange(codes.shape[1]) == 0, MASK_ITEM, codes)

    @jax.jit
    @jax.value_and_grad
    def loss(own):
        both = {"params": {**params, "context_encoder": own}}
        x, table, bias = model.apply(both, codes, context, queries)
        logits = jax.nn.log_softmax(x[:, 0] @ table.T + bias)
        return -logits[np.arange(len(codes)), targets].mean()

    before, gradient = loss(params["context_encoder"])
    squared = sum(jnp.square(x).sum() for x in jax.tree.leaves(gradient))
    rate = 0.01 * before / squared
    own = jax.tree.map(lambda x, dx: x - rate * dx, params["context_encoder"], gradient)
    # To first order the loss falls by a hundredth.
    assert 0.5 < (before - loss(own)[0]) / (0.01 * before) < 1.5


@pytest.mark.soak
def test_as_a_register_it_runs_without_a_context(schema, train_split):
    codes, context = batch(train_split)
    bare = Schema(schema.kind, schema.max_items, schema.items, schema.counts, ())
    with pytest.raises(UserError, match="'gsu_bi', but the data have no context features"):
        build(bare, "gsu_bi")
    model, params = made(bare, "gsu_bi", context=False)
    assert params["conditioning"]["start"].shape == (1, 16)
    assert "state" not in params["conditioning"]
    alone = encode(model, params, codes, {})
    assert np.isfinite(alone).all()
    assert (codes == PAD_ITEM).any()
    # With a context in the data it is not read.
    full, other = made(schema, "gsu_bi", context=False)
    both = {**params, "context_encoder": other["context_encoder"]}
    np.testing.assert_array_equal(encode(full, both, codes, context), alone)


def test_counts_of_the_state_that_reads():
    """Each update's FNN reads D more, attention has a query, a register no state network."""
    state = 736 * 128 + 128 + 128 * 128 + 128
    reading = PAPER["gsu"] + 3 * 128 * 256
    assert count("gsu_bi") == count("gsu_bi", pool="sum") == reading
    assert count("gsu_bi", pool="attention") == reading + 3 * (128 * 128 + 128)
    assert count("gsu_bi", context=False) == reading - state + 128


@pytest.mark.parametrize(
    ("method", "chosen"),
    [
        ("gs_deep", {}),
        ("gsu_bi", {}),
        ("gsu_bi", {"pool": "attention"}),
        ("gsu_bi", {"pool": "sum", "context": False}),
    ],
)
def test_operations_are_those_of_the_traced_model(schema, monkeypatch, method, chosen):
    monkeypatch.setattr(attention, "SHORT", 0)
    assert_traced(build(schema, method, **chosen))
