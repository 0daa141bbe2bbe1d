"""The estimate of a run's memory, and the runs that it refuses."""

import dataclasses
import subprocess
import sys
from unittest import mock

import jax
import psutil
import pytest

from cbert import parallel, processes
from cbert.errors import UserError
from cbert.model import conditioning, parameter_tree
from cbert.training import config as config_lib
from cbert.training import memory
from cbert.training import run as run_lib
from tests.conftest import refused, small, some


@pytest.mark.parametrize("method", some(conditioning.NAMES, "gsu"))
def test_parameters_of_a_deep_model_are_counted_without_building_it(schema, method):
    config = small(method, model__layers=7)
    sizes = parameter_tree.parameter_sizes(config_lib.build_model(config, schema))
    assert memory.parameter_count(config, schema) == sum(sizes.values())


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (25_340_000_000, "25.3 GB"),
        (10**22, "1e+04 EB"),
    ],
)
def test_sizes_are_readable(size, text):
    assert memory.readable(size) == text


def test_the_estimate_of_several_seeds(schema):
    config = small(train__batch_size=6400, eval__batch_size=1, model__layers=2)
    needs = memory.estimate(config, schema, 10, 3)
    parameters = memory.parameter_count(config, schema)
    devices = parallel.device_count()
    # Three seeds of items [6400 / devices, 10, 32] in the feed-forward layer.
    activation = 4 * 3 * (6400 // devices) * 10 * 32
    assert activation > 4 * parameters * 3
    assert [need.size for need in needs] == [
        4 * parameters * 3,
        8 * parameters * 3,
        activation,
    ]


def test_the_estimate_of_logits_is_what_is_made(schema):
    """Each seed makes all logits of its batch where they are few; an evaluation, chunks,
    unless on a GPU.
    """
    schema = dataclasses.replace(schema, items=tuple(map(str, range(60_000))))
    schema = dataclasses.replace(schema, counts=(1,) * 60_000)
    queries = 1000 // parallel.device_count()
    config = small(train__batch_size=1000, eval__batch_size=1)
    for seeds in (1, 8):
        need = memory.estimate(config, schema, 10, seeds)[-1]
        assert (need.part, need.size) == ("logits", 4 * seeds * queries * 60_000)
    config = small(
        train__batch_size=1, eval__batch_size=20_000, task__masked_item__sampled_items=10
    )
    need = memory.estimate(config, schema, 10, 1)[-1]
    queries = 20_000 // parallel.local_device_count()
    assert (need.part, need.size) == ("logits", 4 * queries * 4000)  # 60 000 in 15 chunks.
    config = small(train__batch_size=1, eval__batch_size=1000)
    queries = 1000 // parallel.local_device_count()
    with mock.patch.object(parallel, "platform", return_value="gpu"):
        need = memory.estimate(config, schema, 10, 1)[-1]
    assert (need.part, need.size) == ("logits", 4 * queries * 60_000)  # All at once.


def test_the_estimate_of_the_state_is_its_real_size(schema, data_dir):
    config = small(data__dir=data_dir)
    state = run_lib.set_up(config, schema).state
    held = sum(leaf.nbytes for leaf in jax.tree.leaves((state.params, state.opt_state)))
    estimated = sum(need.size for need in memory.estimate(config, schema, 10, 1)[:2])
    assert estimated <= held < estimated + 100  # Adam counts its steps, too.


def test_whatever_is_largest_counts_beside_the_state(schema):
    def largest(**overrides):
        config = small(**{"train__batch_size": 8, "eval__batch_size": 8, **overrides})
        return memory.estimate(config, schema, 10, 1)[-1]

    assert largest().part == "gradients"
    evaluated = largest(eval__batch_size=10_000_000)
    assert evaluated.fields[0] == "eval.batch_size"
    assert evaluated.size == 4 * 10 * 16 * -(-10_000_000 // parallel.local_device_count())
    long = small(train__batch_size=8, eval__batch_size=8, model__heads=4, model__layers=2)
    read = memory.estimate(long, schema, 512, 1)[-1]
    assert read.part == "the weights of a block's attention"
    assert read.size == 4 * (8 // parallel.device_count()) * 4 * 512 * 512
    sampled = largest(task__masked_item__sampled_items=10_000_000)
    assert sampled.fields == ("train.batch_size", "task.masked_item.sampled_items")
    assert sampled.size == 4 * (8 // parallel.device_count()) * 10_000_000


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.dimension=1000000", "model.dimension (1000000)"),
        ("model.feed_forward=2000000000", "model.feed_forward (2000000000)"),
        ("model.layers=1000000", "model.layers (1000000)"),
        (
            "task.masked_item.sampled_items=2000000000",
            "task.masked_item.sampled_items (2000000000)",
        ),
        ("eval.batch_size=2000000000", "eval.batch_size (2000000000)"),
        ("train.batch_size=2000000000", "train.batch_size is 2000000000, the training split"),
    ],
)
def test_an_impossible_size_is_refused_before_anything_is_made(
    tmp_path, data_dir, override, message
):
    error = refused(
        "train",
        "--config=configs/base.py:gsu",
        f"--workdir={tmp_path}/run",
        f"--config.data.dir={data_dir}",
        "--config.data.name=small",
        f"--config.{override}",
    )
    assert message in error
    assert not (tmp_path / "run").exists()


def test_an_accelerator_holds_the_columns_of_the_training_split(schema, monkeypatch):
    config = small()
    monkeypatch.setattr(parallel, "device_memory", lambda: 10**9)
    memory.check(config, schema, 10, 1, columns=0)
    memory.check(config, schema, 10, 1, columns=10**8)
    message = r"10 GB of it for the training split's columns, .* 1 GB; set data.source=stream"
    with pytest.raises(UserError, match=message):
        memory.check(config, schema, 10, 1, columns=10**10)


def test_the_limit_of_a_process_counts():
    code = "from cbert import processes; print(processes.host_memory())"
    command = f"ulimit -v 16000000; exec {sys.executable} -c '{code}'"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 16_000_000 * 1024


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "2000\n"}, 2000),
        ("0::/a/b\n", {"a/b/memory.max": "1000\n", "a/memory.max": "2000\n"}, 1000),
        (
            "4:memory:/c\n3:cpuset:/d\n0::/\n",
            {"memory/c/memory.limit_in_bytes": "3000\n", "d/memory.max": "7\n"},
            3000,
        ),
        ("0::/a\n", {"b/memory.max": "7\n"}, psutil.virtual_memory().total),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path, groups, limits, expected):
    """Of control groups of both versions, and of the groups that they are in."""
    files = {"proc/self/cgroup": groups}
    files |= {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processes.machine_memory(tmp_path) == expected
