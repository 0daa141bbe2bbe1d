"""A run that begins with the parameters of a run on other items."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import traverse_util

from cbert.data import prepared
from cbert.errors import UserError
from cbert.schema import SPECIAL_VALUES, MultiValued, Numerical, Target, TokenFeature
from cbert.tasks import create
from cbert.training import config as config_lib
from cbert.training import from_run
from cbert.training.checkpoint import Checkpoints
from cbert.training.initialize import from_source
from cbert.training.state import Progress, TrainState
from tests import steps
from tests.conftest import small
from tests.models import drawn
from tests.test_initialize import best_params
from tests.text_predictors import assemble, save


def test_items_and_values_are_matched_by_name(trained, schema):
    first = next(feature for feature in schema.features if isinstance(feature, TokenFeature))
    kept = first.values[1:]
    features = [
        dataclasses.replace(feature, values=kept) if feature is first else feature
        for feature in schema.features
    ]
    other = dataclasses.replace(
        schema,
        items=(*schema.items[:10:-1], "new one", "new two"),
        counts=(1,) * (len(schema.items) - 9),
        features=tuple(features),
    )
    config = small(model__layers=1)
    task = create(config, config_lib.build_model(config, other), other)
    params = drawn(task.model)
    source = from_source(str(trained), task.model, other)
    began = steps.flat(source(params))
    assert source.known.keys() == began.keys()
    not_whole = [name for name, whole in source.known.items() if not whole]
    assert sorted(not_whole) == ["embedding/bias", "embedding/items"]
    known, fresh = best_params(trained), steps.flat(params)
    for name in ("embedding/items", "embedding/bias"):
        np.testing.assert_array_equal(began[name][:-2], known[name][:10:-1])
        np.testing.assert_array_equal(began[name][-2:], fresh[name][-2:])
    name = f"context_encoder/feature_{first.name}/embedding"
    special = known[name][:SPECIAL_VALUES]
    np.testing.assert_array_equal(began[name][:SPECIAL_VALUES], special)
    np.testing.assert_array_equal(
        began[name][SPECIAL_VALUES:], known[name][SPECIAL_VALUES + 1 :]
    )
    for other_name in began.keys() - {"embedding/items", "embedding/bias", name}:
        np.testing.assert_array_equal(began[other_name], known[other_name], err_msg=other_name)
    known_items, values = len(schema.items) - 11, len(kept)
    assert f"  items: {known_items} of {known_items + 2} known by name, 2 new" in source.lines
    assert (
        f"  values of {first.name}: {values} of {values} known by name, 0 new" in source.lines
    )


@pytest.mark.parametrize(
    ("moved", "wider", "kept"),
    [(0.05, 0.0, True), (0.5, 0.0, False), (0.0, 0.05, True), (0.0, 0.5, False)],
)
def test_numbers_of_a_little_more_data_keep_their_embedding(
    trained, schema, moved, wider, kept
):
    (age,) = [feature for feature in schema.features if isinstance(feature, Numerical)]
    shift = moved * age.scale
    edges = tuple(edge + shift for edge in age.edges)
    other_age = dataclasses.replace(
        age, mean=age.mean + shift, scale=age.scale * (1 + wider), edges=edges
    )
    features = tuple(other_age if one is age else one for one in schema.features)
    other = dataclasses.replace(schema, features=features)
    config = small(model__layers=1)
    task = create(config, config_lib.build_model(config, other), other)
    params = drawn(task.model)
    began = steps.flat(from_source(str(trained), task.model, other)(params))
    name = f"context_encoder/feature_{age.name}/embedding"
    wanted = best_params(trained) if kept else steps.flat(params)
    np.testing.assert_array_equal(began[name], wanted[name])


def test_a_run_of_another_dimension_is_refused(trained, schema):
    config = small(model__layers=1, model__dimension=8)
    task = create(config, config_lib.build_model(config, schema), schema)
    with pytest.raises(UserError, match=r"model.dimension is 8, and that of .* is 16"):
        from_source(str(trained), task.model, schema)(drawn(task.model))


def test_features_in_another_order_give_what_they_gave(trained, schema, data_dir):
    """The kernels over the context vector have a row for each entry of a feature."""
    longer = [
        dataclasses.replace(feature, max_values=feature.max_values + 2)
        if isinstance(feature, MultiValued)
        else feature
        for feature in reversed(schema.features)
    ]
    other = dataclasses.replace(schema, features=tuple(longer))
    config = config_lib.load(trained)
    own, task = (
        create(config, config_lib.build_model(config, one), one) for one in (schema, other)
    )
    fresh = drawn(task.model)
    began = from_source(str(trained), task.model, other)(fresh)
    known = traverse_util.unflatten_dict(best_params(trained), sep="/")
    rows = prepared.load(data_dir, config.data.name, "validation", schema).columns
    turned = prepared.load(data_dir, config.data.name, "validation", other).columns
    outputs = []
    for made, params, columns in ((own, known, rows), (task, began, turned)):
        few = jax.tree.map(lambda column: column[:4], columns)
        positions = np.zeros((4, 1), np.int32)
        vectors, *_ = made.model.apply(
            {"params": params}, few["items"], few["context"], positions
        )
        outputs.append(np.asarray(vectors))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)


def test_a_directory_that_is_no_run_is_refused(schema, tmp_path):
    config = small(model__layers=1)
    task = create(config, config_lib.build_model(config, schema), schema)
    with pytest.raises(UserError, match="is not a run's work directory"):
        from_source(str(tmp_path), task.model, schema)


def test_a_regression_gives_the_same_numbers_in_other_units():
    """10 + 5 (2 x + 3) is 25 + 10 x, and so is 100 + 50 (0.2 x - 1.5)."""
    known = {
        ("classifier", "kernel"): np.array([[2.0]]),
        ("classifier", "bias"): np.array([3.0]),
        ("pooler", "bias"): np.array([3.0]),
    }
    theirs, ours = (Target("number", mean=m, scale=s) for m, s in ((10, 5), (100, 50)))
    from_run._change_units(known, theirs, ours)
    assert known["classifier", "kernel"] == [[0.2]]
    assert known["classifier", "bias"] == [-1.5]
    assert known["pooler", "bias"] == [3.0]
    from_run._change_units(known, Target("label", ("a", "b"), (1, 1)), ours)
    assert known["classifier", "bias"] == [-1.5]


def test_a_head_is_taken_where_its_target_means_the_same(tmp_path):
    """A number is 5000 + 10 y, whatever the units; rows of other labels would be wrong.

    The parameters are those of step 3, the best, and not those of the last one.
    """
    predictor = assemble("regression")
    save(predictor, tmp_path / "run")
    zeros = jax.tree.map(np.zeros_like, predictor.program.params)
    with Checkpoints(tmp_path / "run") as checkpoints:
        later = TrainState(np.asarray(4), zeros, {"count": np.zeros(1)})
        checkpoints.save(later, Progress(best_step=3))
    target = Target("number", mean=0.0, scale=1.0)
    schema = dataclasses.replace(predictor.schema, target=target)
    model = config_lib.build_model(predictor.config, schema)
    began = steps.flat(from_source(str(tmp_path / "run"), model, schema)(drawn(model)))
    known = steps.flat(predictor.program.params)
    kernel, bias = "classifier/kernel", "classifier/bias"
    np.testing.assert_allclose(began[kernel], 10 * known[kernel], rtol=1e-6)
    np.testing.assert_allclose(began[bias], 5000 + 10 * known[bias], rtol=2e-7)
    for labels, changed in ((("x", "y"), set()), (("y", "x"), {"classifier"})):
        one, other = (
            dataclasses.replace(schema, target=Target("label", each, (2, 1)))
            for each in (labels, ("x", "y"))
        )
        assert from_run._changed(other, one) == changed
