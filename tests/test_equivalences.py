"""Devices, dispatches and seeds in one program change no result."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from cbert.data import prepared
from cbert.training import run as run_lib
from tests.conftest import ROOT, small
from tests.steps import flat, steps

FOUR = """
import sys, jax, numpy as np
from cbert import parallel
from tests.test_equivalences import three_steps
state, results = three_steps(sys.argv[1])
assert parallel.device_count() == 4
for leaf in jax.tree.leaves(state):
    copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
    assert len(copies) == 4
    assert all((copy == copies[0]).all() for copy in copies)
np.savez(sys.argv[2], **results)
"""


def three_steps(data_dir: str):
    """The state after three steps without dropout, and losses and parameters by name."""
    config = small("gs", data__dir=data_dir, model__layers=1, model__dropout=0.0)
    config.task.masked_item.update({"masking": "rate", "mask_rate": 0.4})
    config.train.update({"context_dropout": 0.2, "context_replacement": 0.3})
    schema = prepared.load_schema(data_dir, "small")
    schema = dataclasses.replace(schema, features=schema.features[:3])
    train, held_out = (
        prepared.load(data_dir, "small", split, schema) for split in ("train", "validation")
    )
    weight = np.arange(len(train), dtype=np.float32) % 3
    train = dataclasses.replace(train, example_columns={"weight": weight})
    state, rows = steps(config, schema, 3, run_lib.assemble(config, schema, train, held_out))
    return state, {"loss": [row["loss"] for row in rows], **flat(state.params)}


def test_four_devices_equal_one(data_dir, tmp_path):
    """The devices have different numbers of masked items, and weights."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    command = [sys.executable, "-c", FOUR, data_dir, str(tmp_path / "four.npz")]
    subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, cwd=ROOT, check=True)
    one, four = three_steps(data_dir)[1], np.load(tmp_path / "four.npz")
    assert set(one) == set(four)
    for name in one:
        here, there = one[name], four[name]
        if name.endswith("key_value/bias"):
            # The keys' bias has no gradient but rounding, which Adam scales up.
            here, there = here[16:], there[16:]
        np.testing.assert_allclose(here, there, atol=2e-5, rtol=2e-5, err_msg=name)


@pytest.mark.soak
def test_several_steps_a_dispatch_change_nothing(data_dir, schema):
    """Six steps in dispatches of three equal six dispatches of one."""
    alone, rows = steps(small(data__dir=data_dir), schema, 6)
    config = small(data__dir=data_dir, train__steps_per_dispatch=3)
    dispatched, dispatched_rows = steps(config, schema, 6)
    assert int(dispatched.step) == 6
    for one, other in zip(rows, dispatched_rows, strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    for name, leaf in flat(alone.params).items():
        if name.endswith("key_value/bias"):
            continue  # The keys' bias has no gradient but rounding, which Adam scales up.
        np.testing.assert_allclose(
            flat(dispatched.params)[name], leaf, atol=2e-5, rtol=2e-5, err_msg=name
        )


@pytest.mark.soak
def test_seeds_in_one_program_equal_each_alone(data_dir, schema):
    """Dropout and context dropout are on, so that the seeds' keys matter."""
    overrides = {"train__context_dropout": 0.2}
    configs = [small(data__dir=data_dir, seed=seed, **overrides) for seed in (0, 7)]
    alone = [steps(config, schema, 3) for config in configs]
    made = run_lib.set_up(configs[0], schema, (0, 7))
    for number in range(3):
        _, metrics = made.advance(number)
    for index, (expected, rows) in enumerate(alone):
        for name in rows[-1]:
            assert float(metrics[name][0, index]) == pytest.approx(rows[-1][name], rel=1e-4)
        for name, leaf in flat(expected.params).items():
            got = flat(made.states()[index].params)[name]
            if name.endswith("key_value/bias"):
                got, leaf = got[16:], leaf[16:]
            np.testing.assert_allclose(got, leaf, atol=5e-5, rtol=5e-5, err_msg=name)
