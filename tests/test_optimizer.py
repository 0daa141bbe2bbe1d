"""Weight decay, packing, the learning rate's schedule, and the loss's divisor."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cbert.model import parameter_tree
from cbert.tasks import masked_item
from cbert.training import config as config_lib
from cbert.training import loop, optimizer, packing, schedule
from cbert.training import run as run_lib
from tests.conftest import small, some
from tests.steps import flat, ones, steps


@pytest.mark.parametrize("packs", some([True, False], True))
def test_weight_decay_shrinks_kernels_and_nothing_else(schema, packs):
    config = small(model__numerical="linear")  # A number's embedding has a kernel, too.
    params = ones(config_lib.build_model(config, schema))
    made = optimizer.make_optimizer(0.5, 1.0, 0.9, 0.999, packs)

    @jax.jit
    def step_without_gradients(params):
        none = jax.tree.map(jnp.zeros_like, params)
        return made.update(none, made.init(params), params)[0]

    updates = step_without_gradients(params)
    for path, update in flat(updates).items():
        decays = path.endswith("kernel") and not path.startswith("context_encoder/")
        np.testing.assert_allclose(update, -0.5 if decays else 0.0, rtol=1e-6, err_msg=path)
    kernels = [path for path in flat(updates) if path.endswith("kernel")]
    assert len(kernels) == 9 + ("context_encoder/feature_age/kernel" in kernels) == 10
    assert flat(updates)["embedding/items"].max() == 0


def test_packing_is_undone_by_unpacking(schema, monkeypatch):
    monkeypatch.setattr(packing, "LARGE", 200)
    params = ones(config_lib.build_model(small(), schema))
    numbers = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: jnp.asarray(numbers.random(leaf.shape)), params)
    packed = packing.pack(params)
    assert packed.vectors["rest.embedding.items"] is params["embedding"]["items"]
    assert sum(leaf.size for leaf in packed.vectors.values()) == sum(
        leaf.size for leaf in jax.tree.leaves(params)
    )
    for path, leaf in flat(jax.jit(packing.unpack)(packed, params)).items():
        np.testing.assert_array_equal(leaf, flat(params)[path])


def test_packed_and_plain_optimizers_take_equal_steps(schema, monkeypatch):
    monkeypatch.setattr(packing, "LARGE", 200)
    params = ones(config_lib.build_model(small(), schema))
    numbers = np.random.default_rng(0)
    results = {}

    def draw(deviation):
        return jax.tree.map(
            lambda leaf: np.float32(numbers.normal(0, deviation, leaf.shape)), params
        )

    gradients = [draw(1), draw(1e-4), draw(1)]  # The second one is not clipped.
    assert optax.tree.norm(gradients[1]) < 1 < optax.tree.norm(gradients[0])
    for packs in (True, False):
        made = optimizer.make_optimizer(0.5, 1.0, 0.9, 0.999, packs)

        @jax.jit
        def step(gradient, state, own, made=made):
            updates, state = made.update(gradient, state, own)
            return optax.apply_updates(own, optax.tree.scale(0.1, updates)), state

        state, own = jax.jit(made.init)(params), params
        for gradient in gradients:
            own, state = step(gradient, state, own)
        results[packs] = own, packing.per_leaf(state, params)
        again = packing.as_packed(results[packs][1], state)
        jax.tree.map(np.testing.assert_array_equal, again, state)
    assert jax.tree.structure(results[True]) == jax.tree.structure(results[False])
    for one, other in zip(*map(jax.tree.leaves, results.values()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_schedule_warms_up_and_decays():
    for name, middle in (("cosine", 0.5), ("linear", 0.5), ("constant", 1.0)):
        rate = schedule.Schedule(name, 1.0, 10, 110)
        assert float(rate(0)) == pytest.approx(0.1)
        assert float(rate(10)) == pytest.approx(1.0)
        assert float(rate(60)) == pytest.approx(middle)
        assert float(rate(110)) == pytest.approx(1.0 if name == "constant" else 0.0, abs=1e-6)
    at_once, short = (schedule.Schedule("linear", 1.0, *sizes) for sizes in [(0, 4), (10, 4)])
    assert [float(at_once(step)) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert [float(short(step)) for step in range(4)] == [0.5, 1.0, 1.0, 0.5]


def test_runs_of_other_rates_steps_and_seeds_share_a_program(data_dir, schema):
    """The lowered step is the same text, so that a compiled one is found again."""
    texts = []
    for rate, warmup, total, seed in ((1e-3, 2, 6, 0), (1e-2, 70, 900, 1)):
        config = small(
            "none", data__dir=data_dir, model__layers=1, train__steps=total, seed=seed
        )
        config.optimizer.update({"learning_rate": rate, "warmup_steps": warmup})
        made = run_lib.set_up(config, schema)
        fed, _, length = made.source.feed(0, 1)
        arguments = (made.state, made.resident, fed, made.indices, made.key, length)
        texts.append(made.step.lower(*arguments).as_text())
    assert texts[0] == texts[1]


# A field that a step is made of, and another value than that of `small`.
OF_A_STEP = {
    **{"train.batch_size": 16, "train.accumulate": 2, "train.frozen": "embedding"},
    **{"train.context_dropout": 0.1, "train.context_replacement": 0.1},
    "train.on_nonfinite": "skip",
    **{"optimizer.weight_decay": 0.3, "optimizer.clip_norm": 0.3, "optimizer.b1": 0.3},
    **{"optimizer.b2": 0.3, "optimizer.layer_decay": 0.3, "optimizer.context_rate": 0.3},
    **{"model.dropout": 0.3, "model.attention_dropout": 0.3, "model.kernels": "plain"},
    **{"model.dtype": "bfloat16", "model.remat": True, "model.method": "c"},
    **{"task.masked_item.masking": "rate", "task.masked_item.sampled_items": 8},
    **{"task.masked_item.mask_rate": 0.3, "task.masked_item.corrupt": True},
}


def test_runs_share_a_step_where_it_is_the_same(data_dir, schema, monkeypatch):
    """Every field that a step reads gives another one; rate, length and seed do not."""
    monkeypatch.setattr(parameter_tree, "initialize", ones)

    def step(fields):
        config = small("gs", data__dir=data_dir)
        config.update_from_flattened_dict(fields)
        return run_lib.set_up(config, schema).step

    for field, value in OF_A_STEP.items():
        own = step({})  # Anew, because only the last few are kept.
        assert step({field: value}) is not own, field
    others = {"train.steps": 9, "optimizer.warmup_steps": 1, "optimizer.schedule": "constant"}
    assert step({"seed": 5, "optimizer.learning_rate": 0.5, **others}) is step({})


def test_a_second_training_of_a_process_compiles_nothing(data_dir, tmp_path, caplog):
    fields = {"train__steps": 2, "train__eval_every": 2, "model__feed_forward": 24}
    config = small("none", data__dir=data_dir, **fields)
    compiled = []
    for seed, rate in ((0, 1e-3), (1, 1e-2)):
        config.update({"seed": seed, "optimizer": {"learning_rate": rate}})
        with caplog.at_level(logging.WARNING, "jax"), jax.log_compiles():
            loop.train(config, tmp_path / str(seed))
        compiled.append([line for line in caplog.messages if line.startswith("Compiling ")])
        caplog.clear()
    first, second = compiled
    assert len(first) > 3  # Parameters, step and validation, and what they begin with.
    assert second == []


def test_the_loss_is_divided_by_a_constant(data_dir, schema, monkeypatch):
    """Twice the expected count halves the gradient, whatever the batch holds."""
    config = small("none", data__dir=data_dir, model__dropout=0.0, model__layers=1)
    norms = []
    for expected in (1.0, 2.0):
        monkeypatch.setattr(masked_item, "expected_count", lambda *_, value=expected: value)
        norms.append(steps(config, schema, 1)[1][0]["gradient_norm"])
    assert norms[0] == pytest.approx(2 * norms[1], rel=1e-6)


def test_without_clipping_the_update_waits_for_all_gradients(schema):
    """The norm of all has it wait otherwise."""
    params = ones(config_lib.build_model(small(), schema))
    barriers = []
    for clip_norm in (0.0, 1.0):
        made = optimizer.make_optimizer(0.1, clip_norm, 0.9, 0.999)
        lowered = jax.jit(made.update).lower(params, made.init(params), params)
        barriers.append(lowered.as_text().count("optimization_barrier"))
    assert barriers == [1, 0]
