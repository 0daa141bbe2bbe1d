"""What a model reads of the context: attention to features, and gates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import parallel
from cbert.data.columns import evenly_spaced
from cbert.data.masking import Masking
from cbert.evaluation import attention
from cbert.evaluation.evaluate import Restored
from cbert.model.attention import Attention
from cbert.model.config import ModelConfig
from cbert.tasks.masked_item import MaskedItem
from tests.models import SMALL, build, initialized, made

TWO = dataclasses.replace(SMALL, layers=2)


def zeroed(params, *names):
    """The parameters with those that have one of the names in their path set to zero."""

    def change(path, leaf):
        inside = {str(getattr(key, "key", key)) for key in path}
        return jnp.zeros_like(leaf) if inside & set(names) else leaf

    return jax.tree_util.tree_map_with_path(change, params)


def restored(schema, method, config=TWO, zero=(), **options):
    """A task with parameters."""
    model, params = made(schema, method, config, **options)
    task = MaskedItem(model, schema, Masking("one", 0.15, False))
    return Restored(task, 7, parallel.replicate(zeroed(params, *zero)), 32)


@pytest.mark.parametrize("form", ["auto", "plain"])
def test_the_weights_are_those_of_the_forms(form):
    """With values that are the unit vectors, the output is the weights themselves."""
    config = ModelConfig(dimension=4, heads=1, layers=1, kernels=form, dropout=0.0)
    random = np.random.default_rng(0)
    x = jnp.asarray(random.normal(size=(1, 3, 4)), jnp.float32)
    bias = jnp.asarray(random.normal(size=(1, 3, 3)), jnp.float32)
    mask = jnp.array([[True, True, False]])
    params = Attention(config).init(jax.random.key(0), x, x, mask)["params"]
    keys = params["key_value"]["kernel"][:, :4]
    values = np.linalg.pinv(x[0]) @ np.eye(3, 4)
    params["key_value"]["kernel"] = jnp.concatenate([keys, values], axis=1)
    params["out"]["kernel"] = jnp.eye(4)
    read, kept = Attention(config).apply(
        {"params": params}, x, x, mask, bias, mutable=["intermediates"]
    )
    (weights,) = kept["intermediates"]["attention_weights"]
    np.testing.assert_allclose(weights[0, 0], read[0, :, :3], atol=1e-5)
    assert weights[0, 0, :, 2].max() == 0


def test_equal_logits_are_equal_weights(schema, train_split):
    """Without query and key each observed feature and the null token get the same."""
    split = evenly_spaced(train_split, 40)
    missing = schema.features[0]
    column = np.repeat(np.asarray(missing.missing()), len(split), axis=0)
    column[:10] = split.context[missing.name][:10]
    split = dataclasses.replace(split, context={**split.context, missing.name: column})
    measured = attention.measure(restored(schema, "cross_attention", zero=("query",)), split)
    observed = np.ones((len(split), len(schema.features) + 1))
    model = build(schema, "cross_attention", TWO)
    context = split.context

    def is_observed(encoder):
        return encoder.embed_context(context).observed

    of_features = model.encoder.apply({"params": initialized(model, 0)}, method=is_observed)
    observed[:, :-1] = np.stack([*of_features.values()], axis=1)
    expected = (observed / observed.sum(axis=1, keepdims=True)).mean(axis=0)
    assert [*measured["weights"]] == [*(f.name for f in schema.features), "(null)"]
    for name, mean, there in zip(
        measured["weights"], expected, observed.mean(axis=0), strict=True
    ):
        np.testing.assert_allclose(measured["weights"][name], [mean, mean], atol=1e-5)
        assert measured["present"][name] == pytest.approx(there)
    assert measured["present"][missing.name] <= 0.25
    assert measured["examples"] == 40
