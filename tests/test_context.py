"""The context encoder: its initial parameters, each kind of feature, and a history."""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cbert.model import contextual_bert, parameter_tree
from cbert.model.config import ModelConfig
from cbert.schema import MASK_ITEM, Categorical, History, MultiValued, Numerical, Schema, Vector
from tests.models import applied, drawn

SMALL = ModelConfig(dimension=16, heads=2, layers=1, feed_forward=24)
FEATURES = (
    Categorical("day", 8, ("mon", "tue")),
    Numerical("age", 16, 4.0, 2.5, (1.0, 3.0, 6.5)),
    MultiValued("tags", 8, ("x", "y", "zz"), 3),
    Vector("image", 12, 0.5, 2.0, 3),
    Numerical("level", 4, 1.0, 3.0),
)
VIEWED = History("viewed", 8, max_items=3)
ITEMS = tuple("abcde")


def schema_of(*features):
    return Schema("set", 4, ITEMS, (5, 4, 3, 2, 1), features)


@pytest.mark.parametrize("numerical", ["bins", "linear"])
def test_parameters_begin_as_they_always_have(numerical):
    """A seed gives the same shapes and last two entries as in earlier versions."""
    image = {
        "feature_image/bias": ((12,), (0, 0)),
        "feature_image/kernel": ((3, 12), (-0.136296, -0.195381)),
        "feature_image/missing": ((1, 12), (0.160486, -0.051969)),
        "feature_level/bias": ((4,), (0, 0)),
        "feature_level/kernel": ((1, 4), (0.44956, 1.251871)),
        "feature_level/missing": ((1, 4), (-0.26288, 0.392244)),
        "feature_day/embedding": ((5, 8), (0.299028, 0.33598)),
        "feature_tags/embedding": ((6, 8), (-0.022178, -0.048384)),
    }
    age = {"feature_age/embedding": ((5, 16), (-0.049302, -0.422437))}
    if numerical == "linear":
        age = {
            "feature_age/bias": ((16,), (0, 0)),
            "feature_age/kernel": ((1, 16), (-0.061197, -0.283237)),
            "feature_age/missing": ((1, 16), (-0.260019, -0.329133)),
        }
    config = dataclasses.replace(SMALL, numerical=numerical)
    params = parameter_tree.initialize(
        contextual_bert.build(config, "np", schema_of(*FEATURES)), jax.random.key(7)
    )
    flat = flax.traverse_util.flatten_dict(params["context_encoder"], sep="/")
    assert {path: leaf.shape for path, leaf in flat.items()} == {
        path: shape for path, (shape, _) in {**image, **age}.items()
    }
    for path, (_, last) in {**image, **age}.items():
        np.testing.assert_allclose(np.ravel(flat[path])[-2:], last, atol=2e-6)


@pytest.fixture(scope="module")
def encoder():
    """A model of a context of every kind, its parameters, and its context encoder."""
    schema = schema_of(*FEATURES, VIEWED)
    model = contextual_bert.build(SMALL, "np", schema)
    params = drawn(model)

    def encode(contexts=None, **columns):
        columns = columns or schema.encode_contexts(contexts)
        return model.encoder.apply({"params": params}, columns, method="embed_context")

    return schema, params, jax.jit(encode)


FULL = {
    "day": "mon",
    "age": 3.5,
    "tags": ["x", "y"],
    "image": [1.0, 2.0, 3.0],
    "level": 2,
    "viewed": ["a", "e"],
}


def test_observed_is_false_where_a_feature_is_missing(encoder):
    schema, _, encode = encoder
    partly = [{k: v for k, v in FULL.items() if k != name} for name in FULL]
    strange = {"day": "odd", "tags": [], "viewed": []}
    context = encode(**schema.encode_contexts([FULL, *partly, {}, strange]))
    for index, name in enumerate(FULL):
        wanted = [True] * 7 + [False, name in strange]
        wanted[1 + index] = False
        assert context.observed[name].dtype == bool
        assert context.observed[name].tolist() == wanted
    widths = {feature.name: feature.width for feature in schema.features}
    assert {name: x.shape for name, x in context.features.items()} == {
        name: (9, width) for name, width in widths.items()
    }
    whole = np.concatenate([context.features[f.name] for f in schema.features], axis=1)
    assert (np.asarray(context.vector) == whole).all()


def test_padding_leaks_nowhere(encoder):
    schema, _, encode = encoder
    columns = schema.encode_contexts([FULL])
    wider = {
        **columns,
        "tags": np.pad(columns["tags"], ((0, 0), (0, 4)), constant_values=0),
        "viewed": np.pad(columns["viewed"], ((0, 0), (0, 4)), constant_values=-1),
    }
    np.testing.assert_array_equal(encode(**columns).vector, encode(**wider).vector)


def test_a_history_is_the_mean_of_the_models_items(encoder):
    schema, params, encode = encoder
    histories = [["a", "e"], ["e", "e", "odd"], [], None]
    context = encode(**schema.encode_contexts([{"viewed": one} for one in histories]))
    own, items = params["context_encoder"]["feature_viewed"], params["embedding"]["items"]
    unknown = params["embedding"]["special"][1]
    means = np.stack(
        [(items[0] + items[4]) / 2, (2 * items[4] + unknown) / 3, np.zeros(SMALL.dimension)]
    )
    wanted = np.concatenate([means @ own["kernel"] + own["bias"], own["missing"]])
    np.testing.assert_allclose(context.features["viewed"], wanted, atol=1e-6)
    assert set(own) == {"kernel", "bias", "missing"}
    assert not np.allclose(wanted[2], wanted[3])


def test_sums_of_values_and_items_by_hand():
    schema = schema_of(*FEATURES, VIEWED)
    config = dataclasses.replace(SMALL, value_pooling="sum")
    model = contextual_bert.build(config, "np", schema)
    params = drawn(model)
    columns = schema.encode_contexts([FULL, {"tags": [], "viewed": []}])
    context = applied(model, params, "embed_context", columns)
    tags, own = (params["context_encoder"][f"feature_{name}"] for name in ("tags", "viewed"))
    codes, items = columns["tags"][0], params["embedding"]["items"]
    assert (codes != 0).sum() == 2
    sums = tags["embedding"][codes[0]] + tags["embedding"][codes[1]]
    np.testing.assert_allclose(context.features["tags"], [sums, 0 * sums], atol=1e-6)
    mapped = (items[0] + items[4]) @ own["kernel"] + own["bias"]
    np.testing.assert_allclose(context.features["viewed"], [mapped, own["bias"]], atol=1e-6)


GROUPS, SIZE = 4, 4


def histories(key):
    """256 examples of one item and the three items of its history, all of one group."""
    group_key, item_key = jax.random.split(key)
    group = jax.random.randint(group_key, (256, 1), 0, GROUPS)
    return group * SIZE + jax.random.randint(item_key, (256, 4), 0, SIZE)


def validation_loss(method):
    """Cross-entropy (nats) of new examples after 150 steps."""
    items = tuple(f"i{number}" for number in range(GROUPS * SIZE))
    seen = History("seen", 8, max_items=3)
    schema = Schema("set", 1, items, (1,) * len(items), (seen,))
    model = contextual_bert.build(SMALL, method, schema)
    masked, position = np.full((256, 1), MASK_ITEM, np.int32), np.zeros((256, 1), np.int32)

    def loss(params, drawn):
        context = {"seen": jnp.concatenate([jnp.ones((256, 1), int), drawn[:, 1:]], axis=1)}
        x, table, bias = model.apply({"params": params}, masked, context, position)
        logits = x[:, 0] @ table.T + bias
        return optax.softmax_cross_entropy_with_integer_labels(logits, drawn[:, 0]).mean()

    def step(carry, key):
        params, state = carry
        updates, state = adam.update(jax.grad(loss)(params, histories(key)), state)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params):
        keys = jax.random.split(jax.random.key(1), 150)
        (params, _), _ = jax.lax.scan(step, (params, adam.init(params)), keys)
        return loss(params, histories(jax.random.key(2)))

    adam = optax.adam(0.01)
    return float(train(parameter_tree.initialize(model, jax.random.key(0))))


@pytest.mark.soak
def test_a_history_that_matters_lowers_the_loss():
    """The history tells the group: the optimum is log 16 without it and log 4 with it."""
    assert validation_loss("none") > np.log(GROUPS * SIZE) - 0.02
    assert validation_loss("c") < np.log(SIZE) + 0.15
