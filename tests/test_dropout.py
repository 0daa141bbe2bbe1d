"""Where entries are dropped: each dropout of a model has a barrier, so tracing counts them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.model import parameter_tree
from cbert.model.conditioning import NAMES
from cbert.model.conditioning.method import Method
from cbert.model.embeddings import ItemEmbedding
from cbert.model.encoder import Encoder
from cbert.model.layers import AddAndNorm, hashed_dropout
from cbert.tasks import create
from cbert.training import config as config_lib
from tests import text_predictors
from tests.conftest import some
from tests.models import SMALL, batch, build
from tests.test_modulation import normed
from tests.text_data import small_text

LAYERS = 2
DROPPING = dataclasses.replace(SMALL, layers=LAYERS, dropout=0.1, kernels="fast")
# The embeddings, and the output of each sub-layer.
PLAIN = 1 + 2 * LAYERS
# What a method drops besides: what each block reads, a shift, the sub-layers of a history.
READ = {"gs", "gsu", "gsu_bi", "gs_deep", "cross_attention", "film"}
MORE = {**dict.fromkeys(READ, LAYERS), "mag": 1, "history": LAYERS + 2}


def dropouts(function, *arguments):
    return str(jax.make_jaxpr(function)(*arguments)).count("optimization_barrier")


@pytest.mark.parametrize("plain_start", some([False, True], False))
@pytest.mark.parametrize("method", some(NAMES, "gs"))
def test_each_method_drops_what_it_says(schema, train_split, method, plain_start):
    config = dataclasses.replace(DROPPING, start_as_plain=plain_start)
    model, (codes, context) = build(schema, method, config), batch(train_split, rows=2)

    def outputs(params, rngs):
        return model.apply({"params": params}, codes, context, codes[:, :1] * 0, rngs=rngs)

    shapes, key = parameter_tree.shapes(model), jax.random.key(0)
    assert dropouts(outputs, shapes, {"dropout": key}) == PLAIN + MORE.get(method, 0)
    assert dropouts(outputs, shapes, {}) == 0


TARGETS = {"classification": {"label": [0]}, "tagging": {"tags": [[-1, 0, 1, -1]]}}


@pytest.mark.parametrize("name", some(TARGETS, "classification"))
def test_the_loss_of_texts_drops_entries_of_the_head_too(name):
    schema = text_predictors.schema(name)
    config = small_text(name, "", model__dropout=0.1, model__kernels="fast")
    task = create(config, config_lib.build_model(config, schema), schema)
    columns = {"items": [[2, 5, 6, 3]], "segments": [[0] * 4], **TARGETS[name]}
    made = {name: np.array(column, np.int32) for name, column in columns.items()}
    made |= {"context": schema.encode_contexts([{}]), "divisor": 1.0}
    shapes, key = parameter_tree.shapes(task.model), jax.random.key(0)

    def loss(params, key):
        return task.loss(params, made, {"dropout": key})[0]

    # The embeddings, one block of gs, and the head.
    assert dropouts(loss, shapes, key) == 1 + 3 + 1


def test_a_sub_layer_is_dropped_and_what_it_is_added_to_stays():
    config = dataclasses.replace(SMALL, dropout=1 - 1e-7)
    x, y = np.random.default_rng(0).normal(size=(2, 3, 5, 16)).astype(np.float32)
    module = AddAndNorm(config, scale=False, bias=False)
    apply = jax.jit(module.apply)
    dropped = apply({}, x, y, rngs={"dropout": jax.random.key(0)})
    np.testing.assert_allclose(dropped, normed(x), atol=1e-5)
    np.testing.assert_allclose(apply({}, x, y), normed(x + y), atol=1e-5)


def test_each_module_drops_other_entries():
    x, seed = jnp.ones(100_000), jnp.uint32(7)
    one, other = (hashed_dropout(x, seed, name, 0.3) == 0 for name in ("a", "b"))
    assert abs(float((one & other).mean()) - 0.09) < 4 * (0.09 * 0.91 / x.size) ** 0.5


class OneDropout(Method):
    """Every block calls the same module, whose own part drops."""

    def setup(self):
        self.residual_of_ones = AddAndNorm(self.config, scale=False, bias=False)

    def after_attention(self, layer, x, mask, state):
        ones = jnp.ones((64, 64, x.shape[-1]))
        self.sow("intermediates", "kept", self.residual_of_ones(jnp.zeros_like(ones), ones) > 0)
        return x


@pytest.mark.parametrize("remat", [False, True])
def test_a_module_drops_other_entries_in_each_call(remat):
    config = dataclasses.replace(DROPPING, dropout=0.3, remat=remat)
    encoder = Encoder(config, OneDropout, None, (), ItemEmbedding, (4, 2, 1))
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    inputs = jnp.ones((1, 2, config.dimension)), jnp.ones((1, 2), bool), {}
    run = jax.jit(functools.partial(encoder.init, mutable=True))
    one, other = run(rngs, *inputs)["intermediates"]["conditioning"]["kept"]
    both = float((one & other).mean())
    assert abs(both - 0.49) < 4 * (0.49 * 0.51 / one.size) ** 0.5
