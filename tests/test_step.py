"""What a step draws: others in every step, and in every part of a batch other dropouts."""

import functools

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
from tests.conftest import some

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
