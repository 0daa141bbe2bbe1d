"""Streamed batches are those from memory, bit for bit, and so is what is trained on them."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import traverse_util

from cbert import parallel
from cbert.data.batching import Batches
from cbert.data.in_memory import InMemory, gather_rows
from cbert.data.streaming import Streaming
from cbert.training import loop
from tests.conftest import ROOT, small, some
from tests.test_training import restored

gather = jax.jit(gather_rows, static_argnums=2)


def both(split, batch_size, seeds):
    """The two sources, each with batches of its own."""
    return [
        source(split, [Batches(split.lengths, batch_size, seed) for seed in seeds])
        for source in (InMemory, Streaming)
    ]


def taken(source, fed, length):
    """What each device takes from its columns or the resident ones, for all steps and seeds."""
    columns, rows = fed
    batches = []
    for device, own in enumerate(rows):
        flat = traverse_util.flatten_dict(columns)
        sent = traverse_util.unflatten_dict({name: flat[name][device] for name in flat})
        table = sent or source.resident
        batches.append(gather(table, own.reshape(-1), length))
    return jax.device_get(batches)


def assert_same_batches(split, batch_size, seeds, calls):
    """Feeds both sources for some (step, most); returns the padded lengths and counts."""
    memory, stream = both(split, batch_size, seeds)
    shapes = set()
    for step, most in calls:
        fed, count, length = memory.feed(step, most)
        streamed, *sizes = stream.feed(step, most)
        assert sizes == [count, length]
        expected = taken(memory, fed, length)
        batch = taken(stream, streamed, length)
        assert jax.tree.structure(batch) == jax.tree.structure(expected)
        for one, other in zip(jax.tree.leaves(batch), jax.tree.leaves(expected), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert batch[0]["items"].shape[-1] == length
        shapes.add((count, length))
    return shapes


@pytest.mark.parametrize("seeds", [(3,), (0, 7)])
def test_batches_are_the_same_bit_for_bit(train_split, seeds):
    """Two epochs, step by step and several at once, then back and from the middle.

    Of the steps that are asked for by twos, some calls get one, and the next jumps over one.
    """
    calls = [(step, 1) for step in range(80)]
    calls += [(step, 2) for step in (80, 82, 83, 7, 8, 30, 31, 33, 34, *range(40, 60, 2))]
    shapes = assert_same_batches(train_split, 8, seeds, calls)
    assert len({length for _, length in shapes}) > 2
    assert {count for count, _ in shapes} == {1, 2}


def files(workdir):
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    return [
        {name: value for name, value in row.items() if "second" not in name} for row in rows
    ]


@pytest.mark.soak
@pytest.mark.parametrize("seeds", some([[5], [5, 6]], [5, 6]))
def test_training_ends_with_equal_checkpoints(data_dir, tmp_path, seeds):
    """Several steps a dispatch; the streamed run stops in the middle, and goes on."""
    config = small(data__dir=data_dir, train__steps=8, train__steps_per_dispatch=2)
    config.model.layers = 1
    config.train.update({"length_buckets": 8, "eval_every": 4, "checkpoint_every": 4})
    paths = {
        name: [tmp_path / f"{name}{seed}" for seed in seeds] for name in ("memory", "stream")
    }
    loop.train_seeds(config, seeds, paths["memory"])
    config.data.source = "stream"
    Stopping.after(4, config, seeds, paths["stream"])
    assert not (paths["stream"][0] / "checkpoints" / "8").exists()
    loop.train_seeds(config, seeds, paths["stream"])
    for one, other in zip(*paths.values(), strict=True):
        (step, expected), (streamed_step, params) = (
            restored(config, path) for path in (one, other)
        )
        assert step == streamed_step == 8
        for name, value in expected.items():
            np.testing.assert_array_equal(params[name], value, err_msg=name)
        assert files(one) == files(other)


class Stopping(Exception):  # noqa: N818
    @classmethod
    def after(cls, last, config, seeds, paths):
        """Trains until a step of the stream fails."""
        feed = Streaming.feed

        def failing(self, step, most):
            if step >= last:
                raise cls
            return feed(self, step, most)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Streaming, "feed", failing)
            with pytest.raises(cls):
                loop.train_seeds(config, seeds, paths)


FOUR = """
import sys
import jax
from cbert.data import prepared
from tests.test_streaming import assert_same_batches

assert jax.device_count() == 4
schema = prepared.load_schema(sys.argv[1], "small")
split = prepared.load(sys.argv[1], "small", "train", schema)
for seeds in ((0,), (1, 2)):
    print(assert_same_batches(split, 8, seeds, [(0, 1), (1, 1), (2, 4), (9, 1)]))
"""


def test_four_devices_get_the_same_batches(data_dir):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", FOUR, data_dir],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("{(") == 2


def test_only_the_rows_of_own_devices_are_read(train_split, monkeypatch):
    """Of two processes with a device each, this one reads half of every batch, unpadded."""
    half = lambda rows, axis: np.split(rows, 2, axis)[1][None]  # noqa: E731
    monkeypatch.setattr(parallel, "split", half)
    batches = Batches(train_split.lengths, 32, 0)
    (columns, counted), _, _ = Streaming(train_split, [batches]).feed(3, 1)
    rows, length = batches(3)
    assert length < train_split.items.shape[1]
    np.testing.assert_array_equal(
        columns["items"][:, counted[0, 0]], train_split.items[rows[16:], :length][None]
    )
