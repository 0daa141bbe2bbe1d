"""What a step draws: others in every step, and in every part of a batch other dropouts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cbert import collectives, parallel
from cbert.data.context_replacement import replace_features
from cbert.parallel import AXIS
from cbert.tasks.base import Examples
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training.schedule import Schedule
from cbert.training.step import make_train_step
from tests.conftest import small, some

KEY = jax.random.key(3)
COUNT = 8
OPTIMIZER = optax.sgd(1.0)


class Drawing:
    """A task whose gradients are what its keys draw: for each example, and for dropout."""

    model = None

    def batch(self, keys, examples):
        return jax.random.uniform(keys[0], (examples.batch_size,))[examples.index]

    def loss(self, params, batch, rngs):
        drawn, dropped = batch.sum(), jax.random.uniform(rngs["dropout"])
        count = jnp.float32(len(batch))
        return params["drawn"] * drawn + params["dropped"] * dropped, {"loss": (drawn, count)}


@functools.cache
def compiled(accumulate):
    """A step with rows of a `vmap` in place of devices."""
    take = make_train_step(Drawing(), OPTIMIZER, accumulate=accumulate)
    axes = None, Examples({}, None, 0, COUNT), None
    return jax.jit(jax.vmap(take, axes, axis_name=AXIS))


def moved(step, accumulate=1, devices=1):
    """The gradients and the metrics of a step."""
    params = {"drawn": np.zeros((), "f"), "dropped": np.zeros((), "f")}
    state = state_lib.create(params, OPTIMIZER).replace(step=np.int32(step))
    index = np.arange(COUNT).reshape(devices, -1)
    constants = {"learning_rate": Schedule("linear", 0.5, 0, 4)}
    examples = Examples({}, constants, index, COUNT)
    after, metrics = compiled(accumulate)(state, examples, KEY)
    assert after.step.tolist() == [step + 1] * devices
    scale = -0.5 * (4 - step) / 4
    gradients = {name: value / scale for name, value in after.params.items()}
    for values in (*gradients.values(), *metrics.values()):
        np.testing.assert_array_equal(values, np.broadcast_to(values[0], devices))
    return {name: float(value[0]) for name, value in (gradients | metrics).items()}


@pytest.mark.parametrize("parts", some([(1, 1), (2, 1), (1, 2), (2, 2)], (1, 1), (2, 2)))
def test_parts_draw_what_the_whole_does_and_drop_each_their_own(parts):
    """Each device has micro-batches; both are numbers of parts."""
    found = moved(1, *parts)
    keys = jax.random.split(jax.random.fold_in(KEY, 1), 3)
    own = [jax.random.fold_in(keys[2], part) for part in range(parts[0] * parts[1])]
    dropped = sum(float(jax.random.uniform(key)) for key in own)
    drawn = float(jax.random.uniform(keys[0], (COUNT,)).sum())
    assert found == pytest.approx(
        {
            "drawn": drawn,
            "dropped": dropped,
            "loss": drawn,
            "loss_count": COUNT,
            "gradient_norm": np.hypot(drawn, dropped),
            "gradient_norm_count": 1,
        }
    )


def test_every_step_draws_anew():
    steps = [moved(step) for step in range(3)]
    for name in ("drawn", "dropped"):
        assert len({each[name] for each in steps}) == 3


class Showing:
    """A task whose gradient is the context that a step shows."""

    model = None

    def batch(self, keys, examples):
        return examples.columns["context"]["day"][:, 0]

    def loss(self, params, batch, rngs):
        return (params * batch).sum(), {"loss": (batch.sum(), jnp.float32(len(batch)))}


def test_a_step_shows_the_context_that_was_replaced_by_a_key_of_its_own():
    sample, context = ({"day": start + np.arange(50.0)[:, None]} for start in (1000, 1))
    take = jax.jit(make_train_step(Showing(), OPTIMIZER, context_replacement=0.4))
    constants = {
        "learning_rate": Schedule("constant", 1.0, 0, 4),
        "context_sample": sample,
    }
    index = np.arange(50)
    examples = Examples({"context": context}, constants, index, 50)
    for step in (0, 1):
        state = state_lib.create(np.zeros(50, "f"), OPTIMIZER).replace(step=np.int32(step))
        key = jax.random.split(jax.random.fold_in(KEY, step), 3)[1]
        own = jax.random.fold_in(key, 1), context, sample, index, 50, 0.4
        shown = take(state, examples, KEY)[0].params
        np.testing.assert_allclose(-shown, replace_features(*own)["day"][:, 0], rtol=1e-6)
        assert 8 < (shown < -900).sum() < 32


def test_each_step_of_a_dispatch_and_each_seed_has_its_own_rows_and_key():
    """Whole numbers, by which the order of the steps counts."""
    values = np.random.default_rng(0).integers(100, size=20)
    rows = np.random.default_rng(1).integers(20, size=(3, 2, 4 * parallel.device_count()))
    keys = jax.random.split(KEY, 2)

    def step(state, examples, key):
        state = (
            3 * state + collectives.total(examples.sum()) + jax.random.randint(key, (), 0, 9)
        )
        return state, {"state": state}

    def make_examples(resident, columns, rows, indices, length):
        return resident[rows]

    drawn = [int(jax.random.randint(key, (), 0, 9)) for key in keys]
    expected = np.zeros((4, 2), int)
    for number, of_step in enumerate(values[rows].sum(axis=-1)):
        expected[number + 1] = 3 * expected[number] + of_step + drawn
    fed = {}, parallel.split(rows, -1)
    several = parallel.map_train_step(step, make_examples, over_seeds=True)
    state, metrics = several(np.zeros(2, int), values, fed, fed[1], keys, 1)
    np.testing.assert_array_equal(state, expected[-1])
    np.testing.assert_array_equal(metrics["state"], expected[1:])


def test_each_seed_of_a_program_has_what_it_has_alone(data_dir, schema, monkeypatch):
    """Parameters, the key of its steps, and its batches; nothing is compiled."""

    def drawn(model, key):
        return {"embedding": {"items": jax.random.uniform(key, (3,))}}

    monkeypatch.setattr("cbert.model.parameter_tree.initialize", drawn)
    config = small("none", data__dir=data_dir)
    splits = run_lib.load_splits(config, schema)
    both, seeds = run_lib.assemble(config, schema, *splits, (0, 7)), []
    for number, seed in enumerate((0, 7)):
        config.seed = seed
        alone = run_lib.assemble(config, schema, *splits)
        rows = [made.source.feed(3, 2)[0][1] for made in (both, alone)]
        np.testing.assert_array_equal(rows[0][:, :, number], rows[1])
        states = both.states()[number], alone.state
        params = [np.asarray(made.params["embedding"]["items"]) for made in states]
        np.testing.assert_array_equal(*params)
        keys = [jax.random.key_data(key) for key in (both.key[number], alone.key)]
        np.testing.assert_array_equal(*keys)
        assert (keys[1] != jax.random.key_data(jax.random.key(seed))).any()
        seeds.append((rows[1], keys[1], params[1]))
    assert all((one != other).any() for one, other in zip(*seeds, strict=True))
