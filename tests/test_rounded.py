"""Kernels that are rounded once give the predictions of those that every batch rounds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from cbert import parallel, tasks
from cbert.data.columns import selected
from cbert.data.masking import ONE
from cbert.evaluation import sown
from cbert.inference import item_functions
from cbert.inference.program import Program, Rows
from cbert.inference.queries import Query
from cbert.model import attention, parameter_tree
from cbert.model.conditioning import NAMES
from cbert.schema import MASK_ITEM
from cbert.serving.reading import Reader
from cbert.tasks import prediction
from cbert.training import config as config_lib
from tests.conftest import small, some
from tests.models import SMALL, batch, drawn, made
from tests.test_predict import assemble


@pytest.mark.parametrize("kernels", ["fast", "plain"])
@pytest.mark.parametrize("method", some(NAMES, "gsu"))
def test_predictions_are_the_same_to_the_bit(schema, train_split, method, kernels):
    config = dataclasses.replace(SMALL, dtype="bfloat16", kernels=kernels)
    model, params = made(schema, method, config)
    codes, context = batch(train_split)
    apply = jax.jit(model.apply)
    positions = np.zeros((len(codes), 1), np.int32)
    hidden, *_ = apply({"params": params}, codes, context, positions)
    rounded = parameter_tree.rounded(model, params)
    again, *_ = apply({"params": rounded}, codes, context, positions)
    assert hidden.std() > 0.1
    np.testing.assert_array_equal(hidden, again)


def test_only_the_kernels_of_blocks_are_rounded(schema):
    config = dataclasses.replace(SMALL, dtype="bfloat16")
    model, params = made(schema, "gs", config)
    before = traverse_util.flatten_dict(params)
    after = traverse_util.flatten_dict(parameter_tree.rounded(model, params))
    changed = {path for path, leaf in after.items() if leaf.dtype != jnp.float32}
    # The query, the keys and values, what is read, and the two layers of the FNN.
    assert len(changed) == 5 * SMALL.layers
    assert {path[-1] for path in changed} == {"kernel"}
    for path, leaf in before.items():
        if path not in changed:
            assert after[path] is leaf


def test_shown_attention_is_that_of_float32_products(schema, train_split):
    """Rounding what the products give, too, would change a weight by some thousandths."""
    config = dataclasses.replace(SMALL, dtype="bfloat16")
    model, params = made(schema, "none", config)
    codes, context = batch(train_split)
    columns = {"items": codes, "context": context}
    rounded = parameter_tree.rounded(model, params)

    def weights(model, kept, mask):
        return {"weights": kept["blocks_0"]["attention"][attention.WEIGHTS][0]}

    exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rounded)
    read = sown.of_columns(model, weights)
    found, expected = (read(each, columns)["weights"] for each in (rounded, exact))
    np.testing.assert_array_equal(found, expected)


def recorder(given, function):
    """The function, which takes parameters first, and keeps what type the kernels have."""

    def recorded(params, *arguments):
        given.append(params["blocks_0"]["fnn"]["hidden"]["kernel"].dtype)
        return function(params, *arguments)

    return recorded


def test_an_evaluation_rounds_before_its_batches(schema, train_split, monkeypatch):
    config, given = small("gs", model__dtype="bfloat16"), []
    model = config_lib.build_model(config, schema)
    task = tasks.create(config, model, schema, train_split)
    recorded = recorder(given, prediction.compiled(task))
    monkeypatch.setattr(prediction, "compiled", lambda task: recorded)
    split = selected(train_split, range(20))
    queries, columns = task.queries(split, ONE), parallel.replicate(split.columns)
    prediction.predict_all(task, drawn(model), columns, split, queries, 10)
    assert len(given) >= 2
    assert set(given) == {jnp.dtype("bfloat16")}


def test_a_predictor_rounds_and_exports_what_it_read(schema):
    config, given = small("gs", model__dtype="bfloat16"), []
    model = config_lib.build_model(config, schema)
    functions = item_functions.functions(model)
    functions = dataclasses.replace(functions, logits=recorder(given, functions.logits))
    params = drawn(model)
    program = Program(functions, params, schema, schema.max_items)
    context = {feature.name: [None] for feature in schema.features}
    program.score(Rows([[0, MASK_ITEM]], [1], context), np.zeros(1, np.int32))
    assert given == [jnp.dtype("bfloat16")]
    assert program.params is params


def test_what_the_page_reads_is_rounded_once(schema):
    predictor, given = assemble(schema, "late_gate", model__dtype="bfloat16"), []
    reader = Reader(predictor)
    reader._compute = recorder(given, reader._compute)
    reader.read(predictor.check(Query(list(schema.items[:2]), {})))
    assert given == [jnp.dtype("bfloat16")]
