"""Items split over devices, for which the rows of a `vmap` stand; see also test_processes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import tasks
from cbert.benchmark import workload
from cbert.errors import UserError
from cbert.model import item_shards, parameter_tree, placement
from cbert.model.cross_entropy import cross_entropy
from cbert.model.placement import Placement
from cbert.model.scoring import score
from cbert.parallel import AXIS
from cbert.tasks.base import Examples
from cbert.training import config as config_lib
from cbert.training import optimizer as optimizer_lib
from cbert.training import run as run_lib
from cbert.training import schedule
from cbert.training import state as state_lib
from cbert.training.step import make_train_step
from tests import text_data
from tests.conftest import small
from tests.steps import flat
from tests.test_objective import case

DEVICES = 4


def assert_close(one, other):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), one, other
    )


@pytest.mark.parametrize("items", [5, 11])
def test_loss_gradients_and_ranks_equal_those_of_the_whole_table(items):
    """Of 5 items the last device has none, of 11 it has two and a row of padding."""
    hidden, table, bias, targets = case(queries=8, items=items)
    table[1], bias[1] = table[4], bias[4]  # Equal items count against each other.
    weights = np.arange(8.0) / 8

    def results(loss, score, hidden, table, bias, targets, weights):
        def total(*own):
            return (loss(*own, targets) * weights).sum()

        losses = loss(hidden, table, bias, targets)
        gradients = jax.grad(total, (0, 1, 2))(hidden, table, bias)
        return losses, gradients, score(hidden, table, bias, targets)

    def of_device(hidden, table, bias, *rest):
        bias = item_shards.without_padding(bias, items)
        return results(item_shards.cross_entropy, item_shards.score, hidden, table, bias, *rest)

    where = Placement(items, DEVICES)
    parts = where.parts({"embedding": {"items": table, "bias": bias}})["embedding"]
    queries = [x.reshape(DEVICES, 2, *x.shape[1:]) for x in (hidden, targets, weights)]
    losses, (d_hidden, d_table, d_bias), scores = jax.jit(jax.vmap(of_device, axis_name=AXIS))(
        queries[0], parts["items"], parts["bias"], *queries[1:]
    )
    split = where.to_host({"embedding": {"items": d_table, "bias": d_bias}})["embedding"]
    losses, d_hidden, scores = jax.tree.map(
        lambda x: x.reshape(8, *x.shape[2:]), (losses, d_hidden, scores)
    )
    of_whole = jax.jit(results, static_argnums=(0, 1))
    expected = of_whole(cross_entropy, score, hidden, table, bias, targets, weights)
    assert_close((losses, (d_hidden, split["items"], split["bias"]), scores), expected)
    assert scores[1].tolist() == expected[2][1].tolist()


def three_steps(task, shards, params, columns):
    """Parameters, the optimizer's state and metrics of a task whose items are split."""
    task = dataclasses.replace(task, model=task.model.with_shards(shards))
    where = placement.choose(task.model)
    optimizer = optimizer_lib.make_optimizer(0.1, 0.1, 0.9, 0.999, packs=False, norm=where.norm)
    constants = jax.tree.map(jnp.asarray, task.constants())
    constants["learning_rate"] = schedule.Schedule("constant", 0.01, 0, 3)
    train_step = make_train_step(task, optimizer)

    def step(state, columns, index):
        return train_step(state, Examples(columns, constants, index, 8), jax.random.key(1))

    state = state_lib.create(where.parts(params), optimizer)
    batch = columns, jnp.arange(8, dtype=jnp.int32)
    if shards > 1:
        axes = where.axes(state)
        step = jax.vmap(step, (axes, 0, 0), (axes, None), axis_name=AXIS)
        batch = jax.tree.map(lambda x: x.reshape(shards, -1, *x.shape[1:]), batch)
    step, rows = jax.jit(step), []
    for _ in range(3):
        state, metrics = step(state, *batch)
        rows.append(metrics)
    saved = state_lib.to_saved(state, where)
    params = flat(saved.params)
    # The keys' bias has no gradient but rounding, which Adam scales up.
    for name in [name for name in params if name.endswith("key_value/bias")]:
        params[name] = params[name][16:]
    return params, saved.opt_state, rows


@pytest.mark.soak
@pytest.mark.parametrize("chosen", ["none", "gs", "gs sampled"])
def test_steps_equal_those_of_the_whole_table(chosen):
    """The gradient is clipped by its norm, and kernels decay.

    That `vmap` returns one copy of what is not split shows that the devices agree on it.
    """
    method, _, sampled = chosen.partition(" ")
    sizes = workload.Sizes(items=11, context=4, length=3)
    overrides = {"model__layers": 1, "model__dropout": 0.0}
    config = small(method, **overrides, task__masked_item__sampled_items=6 if sampled else 0)
    schema = workload.make_schema(config, sizes)
    split = workload.make_split(config, sizes, schema)
    model = config_lib.build_model(config, schema)
    task = tasks.create(config, model, schema, split)
    random = np.random.default_rng(0)
    began = jax.tree.map(
        lambda leaf: 0.3 * random.standard_normal(leaf.shape, np.float32),
        parameter_tree.shapes(model),
    )
    columns = jax.tree.map(lambda column: column[:8], split.columns)
    whole, divided = (three_steps(task, shards, began, columns) for shards in (1, DEVICES))
    assert_close(divided, whole)
    moved = np.abs(whole[0]["embedding/items"] - began["embedding"]["items"])
    assert moved.max() > 0.01


def test_the_norm_counts_every_row_once():
    where = Placement(5, DEVICES)
    tree = {"embedding": {"items": np.full((5, 1), 2.0), "special": np.full(4, 2.0)}}
    parts = where.parts(tree)
    norm = jax.vmap(where.norm, (where.axes(parts),), None, axis_name=AXIS)(parts)
    assert float(norm) == 6  # The root of nine times four.


def test_a_placed_tree_is_gathered_again():
    """The second moment goes the same way as the parameters, the rest stays as it is."""
    where = Placement(11, DEVICES)
    tree = {
        "embedding": {"items": np.arange(22.0).reshape(11, 2), "bias": np.arange(11.0)},
        "nu": [{"embedding": {"bias": np.arange(11.0), "special": np.ones((3, 2))}}],
        "conditioning": {"embedding": {"bias": np.arange(8.0)}},
    }
    placed = where.to_devices(tree)
    assert placed["embedding"]["items"].shape == (DEVICES, 3, 2)
    assert placed["nu"][0]["embedding"]["bias"].tolist()[3] == [9, 10, 0]
    assert placed["nu"][0]["embedding"]["special"].shape == (3, 2)
    assert placed["conditioning"]["embedding"]["bias"].shape == (8,)
    jax.tree.map(np.testing.assert_array_equal, where.to_host(placed), tree)


def test_what_cannot_be_split_is_refused(schema, data_dir, tmp_path):
    with pytest.raises(
        UserError, match="shard_items is True, which is for the task masked_item"
    ):
        config_lib.check(
            text_data.small_text("classification", tmp_path, train__shard_items=True)
        )
    config = small(data__dir=data_dir, train__shard_items=True)
    with pytest.raises(UserError, match="shard_items is for one seed"):
        run_lib.set_up(config, schema, (0, 1))
