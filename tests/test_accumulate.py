"""A step over micro-batches against the undivided step."""

import jax
import numpy as np
import optax
import pytest

from cbert import parallel
from cbert.errors import UserError
from cbert.training import memory
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from tests import text_data
from tests.conftest import small
from tests.steps import flat


def one_step(config, schema):
    """The gradients and the metrics of a step, and the bytes that its program works in."""
    made = run_lib.set_up(config, schema)
    fed, _, length = made.source.feed(0, 1)
    inputs = made.state, made.resident, fed, made.indices, made.key
    step = made.step.lower(*inputs, length).compile()
    state, metrics = jax.device_get(step(*inputs))
    # After the first step, Adam's first moment is the gradient times 1 - b1.
    moment = flat(optax.tree.get(state_lib.to_saved(state).opt_state, "mu"))
    gradients = {name: value / (1 - config.optimizer.b1) for name, value in moment.items()}
    return gradients, metrics, step.memory_analysis().temp_size_in_bytes


def check_equal(config, schema):
    """A step of four micro-batches equals an undivided one; returns the bytes of both."""
    whole, metrics, undivided = one_step(config, schema)
    config.train.accumulate = 4
    summed, summed_metrics, divided = one_step(config, schema)
    for name, value in whole.items():
        np.testing.assert_allclose(summed[name], value, rtol=0, atol=1e-6, err_msg=name)
    for name, value in metrics.items():
        np.testing.assert_allclose(summed_metrics[name], value, rtol=1e-5, err_msg=name)
    norm = sum((value**2).sum() for value in whole.values()) ** 0.5
    clipped = min(config.optimizer.clip_norm, metrics["gradient_norm"])
    assert norm == pytest.approx(clipped, rel=1e-4)
    return undivided, divided


def test_items_equal_the_undivided_step_in_less_memory(schema, data_dir):
    config = small(
        data__dir=data_dir,
        model__dropout=0.0,
        model__layers=1,
        model__feed_forward=512,
        train__batch_size=256,
        task__masked_item__masking="rate",
        task__masked_item__corrupt=True,
        train__context_dropout=0.3,
        task__masked_item__sampled_items=20,
        optimizer__clip_norm=0.5,
    )
    undivided, divided = check_equal(config, schema)
    assert divided < 0.5 * undivided


@pytest.mark.soak
def test_texts_equal_the_undivided_step(tmp_path):
    text_data.prepare_texts(tmp_path, "label")
    _, schema = text_data.load(tmp_path, "label")
    check_equal(text_data.small_text("masked_language", tmp_path, model__layers=1), schema)


@pytest.mark.soak
def test_each_micro_batch_drops_other_entries(schema, data_dir):
    config = small(data__dir=data_dir, model__layers=1, model__dropout=0.5, train__accumulate=4)
    summed, _, _ = one_step(config, schema)
    config.train.accumulate = 1
    whole, _, _ = one_step(config, schema)
    assert max(np.abs(summed[name] - whole[name]).max() for name in whole) > 1e-3


def test_a_batch_that_cannot_be_split_is_refused(schema, data_dir):
    config = small(data__dir=data_dir, train__accumulate=5)
    devices = parallel.device_count()
    with pytest.raises(UserError, match=f"multiple of .* {devices} times train.accumulate, 5"):
        run_lib.set_up(config, schema)


def test_the_estimate_and_its_refusal_know_micro_batches(schema):
    config = small(train__batch_size=6400, eval__batch_size=1)
    undivided = memory.estimate(config, schema, 10, 1)[-1].size
    config.train.accumulate = 4
    assert memory.estimate(config, schema, 10, 1)[-1].size == undivided / 4
    config.train.batch_size = 10**12
    with pytest.raises(UserError, match=r"or raise train.accumulate \(4\)"):
        memory.check(config, schema, 10, 1, 0)
