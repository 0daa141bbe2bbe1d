"""What a step draws: others in every step, and in every part of a batch other dropouts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cbert.parallel import AXIS
from cbert.tasks.base import Examples
from cbert.training import state as state_lib
from cbert.training.schedule import Schedule
from cbert.training.step import make_train_step

KEY = jax.random.key(3)
COUNT = 8


class Drawing:
    """A task whose gradients are what its keys draw: for each example, and for dropout."""

    model = None

    def batch(self, keys, examples):
        return jax.random.uniform(keys[0], (examples.batch_size,))[examples.index]

    def loss(self, params, batch, rngs):
        drawn, dropped = batch.sum(), jax.random.uniform(rngs["dropout"])
        count = jnp.float32(len(batch))
        return params["drawn"] * drawn + params["dropped"] * dropped, {"loss": (drawn, count)}


def moved(step, accumulate=1, devices=1):
    """The gradients and metrics of a step, with rows of a `vmap` in place of devices."""
    rate = Schedule("linear", 0.5, 0, 4)
    optimizer = optax.sgd(1.0)
    state = state_lib.create({"drawn": jnp.zeros(()), "dropped": jnp.zeros(())}, optimizer)
    state = state.replace(step=jnp.int32(step))
    index = np.arange(COUNT).reshape(devices, -1)
    examples = Examples({}, {"learning_rate": rate}, index, COUNT)
    take = make_train_step(Drawing(), optimizer, accumulate=accumulate)
    mapped = jax.vmap(take, (None, Examples({}, None, 0, COUNT), None), axis_name=AXIS)
    after, metrics = jax.jit(mapped)(state, examples, KEY)
    assert after.step.tolist() == [step + 1] * devices
    scale = -0.5 * (4 - step) / 4
    gradients = {name: value / scale for name, value in after.params.items()}
    for values in (*gradients.values(), *metrics.values()):
        np.testing.assert_array_equal(values, np.broadcast_to(values[0], devices))
    return {name: float(value[0]) for name, value in (gradients | metrics).items()}


@pytest.mark.parametrize(("accumulate", "devices"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_parts_draw_what_the_whole_does_and_drop_each_their_own(accumulate, devices):
    found = moved(1, accumulate, devices)
    keys = jax.random.split(jax.random.fold_in(KEY, 1), 3)
    parts = [jax.random.fold_in(keys[2], part) for part in range(accumulate * devices)]
    dropped = sum(float(jax.random.uniform(part)) for part in parts)
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
