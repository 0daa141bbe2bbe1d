"""Hooks of conditioning methods by hand, called on their own, which compiles little.

Legend: D = 16, two blocks, B = 3 examples of L = 4 positions.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.evaluation import gates, model_state
from cbert.model.conditioning import default_options, method_class
from cbert.model.conditioning.method import ATTENTION, FEED_FORWARD, GATES
from cbert.model.context import Context
from cbert.model.layers import UNITS
from tests.models import SMALL, build
from tests.test_modulation import normed

PLAIN = dataclasses.replace(SMALL, start_as_plain=True)
SEQUENCE = dataclasses.replace(SMALL, positions=True)
NUMBERS = np.random.default_rng(0)
X, Y, VECTORS = NUMBERS.standard_normal((3, 3, 4, 16), np.float32)
MASK, C = np.ones((3, 4), bool), VECTORS[:, 0]
OBSERVED = {"a": np.array([True, False, True]), "b": np.array([False, False, True])}
CONTEXT = Context(C, {"a": C[:, :6], "b": C[:, 6:]}, OBSERVED)


def called(method, config, hook, *arguments, **options):
    """What a hook returns with drawn parameters, and the parameters."""
    module = method_class(method)(config, default_options(method, **options))

    def initialized():
        return module.init(jax.random.key(0), *arguments, method=hook).get("params", {})

    def drawn(leaf):
        return NUMBERS.standard_normal(leaf.shape, np.float32)

    def applied(own):
        return module.apply({"params": own}, *arguments, method=hook)

    own = jax.tree.map(drawn, jax.eval_shape(initialized))
    return jax.jit(applied)(own), own


def mapped(own, x):
    return x @ own["kernel"] + own["bias"]


def test_tokens_see_their_window_and_the_context_and_the_context_sees_all():
    state = np.array([0, 0, 0, 0, 1], np.float32)
    extra, _ = called("global_token", SEQUENCE, "keys_values", 1, state, window=1)
    seen = ["11001", "11101", "01111", "00111", "11111"]
    assert extra.visible.astype(int).tolist() == [[*map(int, row)] for row in seen]


def test_each_block_has_its_own_gates_of_the_new_position():
    state = np.array([0, 0, 1], np.float32)
    extra, own = called("np", PLAIN, "keys_values", 1, state)
    expected = np.log(np.abs(own["gates"][1]))[:, None, None] * state
    np.testing.assert_allclose(extra.bias, expected, rtol=1e-5)


def test_a_register_begins_alike_in_every_example():
    (_, _, state), own = called("gsu_bi", SMALL, "begin", X, MASK, CONTEXT, context=False)
    np.testing.assert_array_equal(state, np.broadcast_to(own["start"], (3, 16)))


def test_cross_attention_reads_what_is_observed_and_always_the_null_token():
    (_, _, (tokens, shown)), own = called("cross_attention", SMALL, "begin", X, MASK, CONTEXT)
    assert shown.astype(int).tolist() == [[1, 0, 1], [0, 0, 1], [1, 1, 1]]
    parts = [
        mapped(own["tokens"][f"feature_{name}"], x) for name, x in CONTEXT.features.items()
    ]
    parts.append(np.broadcast_to(own["null"][0], (3, 16)))
    expected = np.stack(parts, axis=1) * 3**0.5
    np.testing.assert_allclose(tokens, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["history", "cross_attention"])
def test_as_plain_the_second_block_adds_what_it_reads_of_one_token(method):
    """Attention to one token is its value and output projections."""
    state = Y[:, :1], MASK[:, :1]
    after, own = called(method, PLAIN, "after_attention", 1, X, MASK, state)
    attention = own["attention_1"]
    value = {name: leaf[..., 16:] for name, leaf in attention["key_value"].items()}
    read = mapped(attention["out"], mapped(value, Y[:, :1]))
    read = own["gates"][1] * read if method == "history" else mapped(own["out_1"], read)
    np.testing.assert_allclose(after, X + read, rtol=1e-4, atol=1e-3)


def test_as_plain_adaln_zero_scales_what_a_sub_layer_reads_and_gives():
    state = [None, list(NUMBERS.standard_normal((6, 3, 1, 16), np.float32))]
    for sublayer, (s, b, g) in ((ATTENTION, state[1][:3]), (FEED_FORWARD, state[1][3:])):
        read, _ = called("adaln_zero", PLAIN, "sublayer_input", 1, sublayer, X, state)
        np.testing.assert_allclose(read, (1 + s) * X + b, rtol=1e-5, atol=1e-5)
        hook = "residual", 1, sublayer, X, Y, state, lambda x, y: 2 * x + y
        given, _ = called("adaln_zero", PLAIN, *hook)
        np.testing.assert_allclose(given, 2 * X + (1 + g) * Y, rtol=1e-5, atol=1e-5)


def test_each_block_of_adaln_zero_has_its_own_low_rank():
    (_, _, state), own = called("adaln_zero", SMALL, "begin", X, MASK, CONTEXT, rank=3)
    hidden = np.maximum(mapped(own["state"]["hidden"], C), 0)
    g = mapped(own["state"]["out"], hidden)
    g = g / (1 + np.exp(-g))
    for index, vectors in enumerate(state):
        made = g @ own[f"reduced_{index}"]["kernel"]
        expected = mapped(own[f"modulation_{index}"], made)[:, None]
        got = np.concatenate(vectors, axis=-1)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("config", [SMALL, PLAIN])
def test_item_and_context_side_by_side(config):
    (after, _, _), own = called("user_concat", config, "begin", X, MASK, CONTEXT, fraction=0.25)
    user = np.broadcast_to(mapped(own["context"], C)[:, None], (3, 4, 4))
    both = np.concatenate([mapped(own["items"], X), user], axis=-1)
    expected = X + both if config.start_as_plain else both
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [SMALL, PLAIN])
def test_concat_is_one_map_of_item_and_mapped_context(config):
    (after, _, _), own = called("c", config, "begin", X, MASK, CONTEXT)
    c = np.broadcast_to(mapped(own["context"], C)[:, None], X.shape)
    both = mapped(own["out"], np.concatenate([X, c], axis=-1))
    expected = X + both if config.start_as_plain else both
    np.testing.assert_allclose(after, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("where", ["all", "cls"])
def test_a_label_is_added_to_all_tokens_or_to_the_first_alone(where):
    x, shown = jnp.asarray(X), np.arange(4) == 0 if where == "cls" else np.ones(4)
    (after, _, _), own = called("label_add", SEQUENCE, "begin", x, MASK, CONTEXT, where=where)
    expected = X + mapped(own["project"], C)[:, None] * shown[:, None]
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-4)


def test_a_pure_gate_is_filled_by_nothing():
    after, own = called("late_gate", SMALL, "finish", X, C, form="pure")
    logits = mapped(own["gate_hidden"], X) + (C @ own["gate_context"]["kernel"])[:, None]
    np.testing.assert_allclose(after, X / (1 + np.exp(-logits)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("read", [ATTENTION, FEED_FORWARD])
def test_film_scales_and_shifts_after_its_sub_layer(read, shift):
    """A norm that learns nothing may follow; nothing is done after the other sub-layer."""

    def film(config, sublayer, norm=True):
        arguments = 1, sublayer, X, Y, C, lambda x, y: 2 * x + y
        own = {"after": read, "norm": norm, "shift": shift}
        return called("film", config, "residual", *arguments, **own)

    other = ATTENTION if read == FEED_FORWARD else FEED_FORWARD
    np.testing.assert_array_equal(film(SMALL, other)[0], 2 * X + Y)
    for config, norm in ((SMALL, True), (SMALL, False), (PLAIN, True)):
        after, own = film(config, read, norm)
        made = mapped(own["modulation_1"], C)[:, None]
        expected = (1 + made[..., :16]) * (2 * X + Y) + (made[..., 16:] if shift else 0)
        if config is SMALL and norm:
            expected = normed(expected)
        np.testing.assert_allclose(after, expected, rtol=1e-3, atol=1e-3)


def test_gates_begin_open_and_what_stands_in_a_row_keeps_lengths():
    config, key = dataclasses.replace(SMALL, initializer="bert"), jax.random.key(0)
    mag = method_class("mag")(config, default_options("mag"))
    of_injector = default_options("injector", rank=16, bottleneck=16)
    injector = method_class("injector")(config, of_injector)
    own = mag.init(key, X, MASK, CONTEXT, method="begin")["params"]
    np.testing.assert_array_equal(own["gate_context"]["bias"], 1)
    arguments = 0, FEED_FORWARD, X, Y, C, lambda x, y: x + y
    own = injector.init(key, *arguments, method="residual")["params"]
    kernels = {name: np.asarray(layer["kernel"]) for name, layer in own.items()}
    assert 0.01 < kernels.pop("out_0").std() < 0.03
    for kernel in kernels.values():
        assert 0.8 < kernel.std() * len(kernel) ** 0.5 < 1.2


def test_items_of_a_history_have_the_type_of_their_feature():
    histories = {"a": (Y[:, :2], np.array([[True, True], [True, False], [False, False]]))}
    context = dataclasses.replace(CONTEXT, histories=histories)
    (_, _, (tokens, shown)), own = called("history", SMALL, "begin", X, MASK, context, blocks=0)
    expected = [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert shown.astype(int).tolist() == expected
    own = own["tokens"]
    np.testing.assert_allclose(tokens[:, :2], Y[:, :2] + own["type_a"], rtol=1e-5)
    token = mapped(own["features"]["feature_b"], CONTEXT.features["b"])
    np.testing.assert_allclose(tokens[:, 2], token, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(tokens[:, 3], np.broadcast_to(own["empty"][0, 0], (3, 16)))
    none = dataclasses.replace(
        context, observed={name: x & False for name, x in OBSERVED.items()}
    )
    empty = called("history", SMALL, "begin", X, MASK, none, blocks=0)[0][2][1]
    assert empty[2].astype(int).tolist() == [0, 0, 0, 1]


def test_a_gate_of_several_blocks_is_their_mean():
    """The second position is padding, and the last block computes one position alone."""
    first, last = jnp.array([[[0.25], [9.0]]]), jnp.array([[[0.75]]])
    kept = {"conditioning": {GATES: ({"gate": first}, {"gate": last, "own": last})}}
    found = gates.distributions(None, kept, jnp.array([[True, False]]))
    assert found["gate"][0].tolist() == [0.5, 0, 0, 0.5, 0, 0, 0, 0, 0.5, 0, 0, 0]
    assert found["own"][0, 0] == 0.75


def test_a_method_that_shows_gates_and_sows_none_is_told_how(schema):
    model = build(schema, "late_gate")
    with pytest.raises(UserError, match="LateGate shows gates and sows none; sow a dict from"):
        gates.distributions(model, {}, jnp.array([[True]]))


def test_only_the_updates_of_a_state_have_dead_units(schema):
    """A module of somebody's own may be named like them."""
    units = jnp.array([[0.0, 2.0]])
    own, mask = {"fnn_state": {UNITS: (units,)}}, jnp.array([[True]])
    assert model_state.read(build(schema, "gs"), {"conditioning": own}, mask) == {}
    own["fnn_0"] = own["fnn_state"]
    read = model_state.read(build(schema, "gsu"), {"conditioning": own}, mask)
    assert [*read] == ["active_0"]
    assert read["active_0"].tolist() == [[False, True]]
