"""What a method of somebody's own says of the keys that its positions read."""

import dataclasses

import pytest

from cbert.config import field
from cbert.data.columns import evenly_spaced
from cbert.errors import UserError
from cbert.evaluation import attention
from cbert.model import conditioning
from cbert.model.conditioning.cross_attention import CrossAttention
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


class Unnamed(conditioning.GlobalState):
    """It says that it has weights to show, and calls no attention."""

    shows = CrossAttention.shows


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    own = {"mix": Mix, "unnamed": Unnamed}
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
