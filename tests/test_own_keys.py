"""The keys that positions read by a method of somebody's own: their names and their biases."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from cbert.config import field
from cbert.data.columns import evenly_spaced
from cbert.errors import UserError
from cbert.evaluation import attention
from cbert.model import conditioning
from cbert.model.conditioning.cross_attention import CrossAttention
from cbert.model.conditioning.method import ExtraKeys, Method
from cbert.model.layers import dense
from tests.models import SMALL, batch, encode, made
from tests.test_explain import restored


@dataclasses.dataclass(frozen=True)
class MixConfig:
    """The method `mix`."""

    null: str = field("(none)", "what the null token is called")
    short: bool = field(False, "whether the null token has no name")


class Mix(CrossAttention):
    """Cross-attention whose null token has a name of one's own."""

    Config = MixConfig

    @classmethod
    def keys(cls, features, tokens, options):
        names = tuple(feature.name for feature in features)
        return names if options.short else (*names, options.null)


class Far(Method):
    """Logits fall with the distance, by slopes that the context makes (after ALiBi)."""

    def setup(self):
        self.slopes = dense(self.config, self.config.heads)

    def begin(self, x, mask, context):
        places = jnp.arange(x.shape[1])
        distance = jnp.abs(places[:, None] - places).astype(jnp.float32)
        return x, mask, self.slopes(context.vector)[..., None, None] * distance

    def keys_values(self, layer, state):
        return ExtraKeys(bias=state)


class Near(Method):
    """The first key has another logit, by a bias of the fewest axes."""

    def keys_values(self, layer, state):
        return ExtraKeys(bias=2.0 * (jnp.arange(6) == 0))


class Unnamed(conditioning.GlobalState):
    """It says that it has weights to show, and calls no attention."""

    shows = CrossAttention.shows


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    own = {"mix": Mix, "far": Far, "near": Near, "unnamed": Unnamed}
    monkeypatch.setattr(conditioning.METHODS, "data", {**conditioning.METHODS, **own})


def test_names_of_keys_follow_the_options(schema, train_split):
    split = evenly_spaced(train_split, 20)
    given = restored(schema, "mix", null="(nothing)")
    measured = attention.measure(given, split)
    names = [*(feature.name for feature in schema.features), "(nothing)"]
    assert [*measured["weights"]] == names
    totals = [sum(of_block) for of_block in zip(*measured["weights"].values(), strict=True)]
    assert totals == pytest.approx([1, 1], abs=1e-5)
    assert measured["present"]["(nothing)"] == 1
    for feature in schema.features:
        there = (split.context[feature.name] != feature.missing()).any(axis=1).mean()
        assert measured["present"][feature.name] == pytest.approx(there)


def test_another_number_of_names_than_keys_is_refused(schema, train_split):
    split = evenly_spaced(train_split, 20)
    count = len(schema.features)
    with pytest.raises(UserError) as refusal:
        attention.measure(restored(schema, "mix", short=True), split)
    assert str(refusal.value) == (
        f"keys of Mix gives {count} names, and the attention of block 1 has {count + 1} keys; "
        "give a name for each"
    )
    with pytest.raises(UserError, match="Unnamed has no module attention_0 that sows 'attent"):
        attention.measure(restored(schema, "unnamed"), split)


@pytest.mark.parametrize("length", [6, 12])  # Of the form for short sets, and of the other.
def test_a_bias_follows_the_context_and_the_queries(schema, train_split, length):
    model, params = made(schema, "far", dataclasses.replace(SMALL, kernels="auto"))
    codes, context = batch(train_split, rows=3, length=length)
    queries = np.array([[1, 0], [0, 1], [1, 1]], np.int32)
    every, read = (encode(model, params, codes, context, asked) for asked in (None, queries))
    expected = np.take_along_axis(np.asarray(every), queries[..., None], axis=1)
    np.testing.assert_allclose(read, expected, atol=1e-5)

    plain = made(schema, "far", dataclasses.replace(SMALL, kernels="plain"))[0]
    np.testing.assert_allclose(encode(plain, params, codes, context), every, atol=1e-5)
    slopes = {name: 0 * leaf for name, leaf in params["conditioning"]["slopes"].items()}
    flat = encode(model, {**params, "conditioning": {"slopes": slopes}}, codes, context)
    other = {name: column[::-1] for name, column in context.items()}
    changed = np.abs(encode(model, params, codes, other) - every).max(axis=(1, 2))
    assert changed[[0, 2]].min() > 0.01
    assert changed[1] < 1e-5
    assert np.abs(flat - every).max() > 0.01


def test_a_bias_of_the_keys_alone_is_that_of_every_head_and_query(schema, train_split):
    model, params = made(schema, "near")
    codes, context = batch(train_split, rows=3, length=6)
    queries = np.array([[1, 0], [0, 1], [1, 1]], np.int32)
    every, read = (encode(model, params, codes, context, asked) for asked in (None, queries))
    expected = np.take_along_axis(np.asarray(every), queries[..., None], axis=1)
    np.testing.assert_allclose(read, expected, atol=1e-5)
    without = encode(made(schema, "none")[0], params, codes, context)
    assert np.abs(without - every).max() > 0.01
