"""Devices, dispatches and seeds in one program change no result."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cbert.training import run as run_lib
from tests.conftest import small
from tests.steps import flat, steps

DEVICES = """
import dataclasses, sys, numpy as np
from tests.conftest import small
from tests.steps import flat, steps
from cbert.data import prepared
from cbert import parallel
from cbert.training import run
import jax
config = small("gs", data__dir=sys.argv[1], model__layers=1, model__dropout=0.0)
config.train.update({"masking": "rate", "mask_rate": 0.4})
config.train.update({"context_dropout": 0.2, "context_replacement": 0.3})
schema = prepared.load_schema(sys.argv[1], "small")
train, held_out = (
    prepared.load(sys.argv[1], "small", split, schema) for split in ("train", "validation")
)
weight = np.arange(len(train), dtype=np.float32) % 3
train = dataclasses.replace(train, example_columns={"weight": weight})
state, rows = steps(config, schema, 3, run.assemble(config, schema, train, held_out))
assert parallel.device_count() == int(sys.argv[3])
for leaf in jax.tree.leaves(state):
    copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
    assert len(copies) == parallel.device_count()
    assert all((copy == copies[0]).all() for copy in copies)
np.savez(sys.argv[2], loss=[row["loss"] for row in rows], **flat(state.params))
"""


def test_four_devices_equal_one(data_dir, tmp_path):
    """The devices have different numbers of masked items, and weights; dropout is 0."""
    for count in (1, 4):
        environment = {
            **os.environ,
            "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} "
            f"--xla_force_host_platform_device_count={count}",
        }
        arguments = [data_dir, str(tmp_path / f"{count}.npz"), str(count)]
        subprocess.run([sys.executable, "-c", DEVICES, *arguments], env=environment, check=True)
    one, four = (np.load(tmp_path / f"{count}.npz") for count in (1, 4))
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
