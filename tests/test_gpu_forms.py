"""What a program for a GPU does in another way, run on a CPU: the results are the same."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import parallel
from cbert.benchmark import workload
from cbert.model import look_up, parameter_tree, scoring
from cbert.training import config as config_lib
from cbert.training import packing
from tests.conftest import ROOT, small, some

SIZES = workload.Sizes(items=200, context=100, length=6)


def on_gpu():
    return mock.patch.object(parallel, "platform", return_value="gpu")


def test_gradients_of_look_ups_are_sums_over_equal_codes():
    """Row 0 is used by the first and the last code, row 1 by none, and row 2 by one."""
    table, codes = jnp.zeros((3, 2)), jnp.array([[0, 2], [2, 0]])
    d_rows = jnp.arange(8.0).reshape(2, 2, 2)
    with on_gpu():
        _, pull = jax.vjp(lambda table: look_up.small_look_up(table, codes), table)
        [gradient] = pull(d_rows)
    np.testing.assert_array_equal(gradient, [[0 + 6, 1 + 7], [0, 0], [2 + 4, 3 + 5]])
    x, positions = jnp.zeros((2, 3, 2)), jnp.array([[1, 1], [2, 0]])
    with on_gpu():
        [gradient] = jax.vjp(lambda x: look_up.at_positions(x, positions), x)[1](d_rows)
    expected = [[[0, 0], [0 + 2, 1 + 3], [0, 0]], [[6, 7], [0, 0], [4, 5]]]
    np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("part", [2048, 3])
def test_rows_of_equal_codes_are_added_once(part, monkeypatch):
    """Each row of the table gets the rows of its codes, also beside another seed's."""
    monkeypatch.setattr(look_up, "PART", part)
    codes = jnp.array([[0, 2, 0, 0], [1, 1, 2, 1]])
    d_rows, d_table = jnp.arange(8.0).reshape(4, 2), jnp.full((3, 2), 100.0)

    def gradient(codes):
        table = jnp.zeros((3, 2))
        _, pull = jax.vjp(lambda table: look_up.look_up(table, codes), table)
        return pull((d_rows, d_table))[0]

    with on_gpu():
        program = jax.jit(jax.vmap(gradient)).lower(codes)
    assert program.as_text().count("unique_indices = true") == 1
    assert ("stablehlo.while" in program.as_text()) == (part == 3)
    expected = [
        [[100 + 0 + 4 + 6, 100 + 1 + 5 + 7], [100, 100], [102, 103]],
        [[100, 100], [100 + 0 + 2 + 6, 100 + 1 + 3 + 7], [104, 105]],
    ]
    np.testing.assert_array_equal(program.compile()(codes), expected)


def test_parameters_that_a_host_draws_are_bound_to_no_device():
    """Or they could not be packed beside given ones, which several GPUs hold."""
    config = small()
    model = config_lib.build_model(config, workload.make_schema(config, SIZES))
    with on_gpu():
        params = parameter_tree.initialize(model, jax.random.key(3))
    assert not any(leaf.committed for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("limit", "operation"),
    [(None, "reduce"), ("MOST_COMPARED", "dot_general"), ("MOST_PAIRS", "scatter")],
)
def test_large_gradients_are_summed_by_a_product_or_scattered(limit, operation, monkeypatch):
    """All forms of the gradient are the same."""
    if limit:
        monkeypatch.setattr(look_up, limit, 0)
    random = np.random.default_rng(0)
    table, codes = random.normal(size=(7, 4)), random.integers(0, 7, 30)
    d_rows = np.float32(random.normal(size=(30, 4)))

    def gradient(table, d_rows):
        return jax.vjp(lambda table: look_up.small_look_up(table, codes), table)[1](d_rows)[0]

    with on_gpu():
        program = jax.jit(gradient).lower(np.float32(table), d_rows)
    found = [name for name in ("scatter", "dot_general", "reduce") if name in program.as_text()]
    assert found[0] == operation
    expected = [d_rows[codes == row].sum(axis=0) for row in range(7)]
    np.testing.assert_allclose(
        program.compile()(np.float32(table), d_rows), expected, rtol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_by_products_of_bfloat16_are_those_of_float32(dtype, monkeypatch):
    """Rows are of several sizes, so that a part that were missing would be seen."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 40)) * 10.0 ** random.integers(-6, 3, (300, 1))
    rows, chosen = jnp.asarray(rows, dtype), random.random((50, 300)) < 0.3
    monkeypatch.setattr(look_up, "FEW", 0)
    program = jax.jit(look_up._sums).lower(jnp.asarray(chosen), rows)
    assert "bf16" in re.search(r"dot_general.*", program.as_text())[0]
    expected = chosen @ np.asarray(rows, np.float64)
    error = np.abs(program.compile()(jnp.asarray(chosen), rows) - expected)
    assert (error <= 1e-6 * (chosen @ np.abs(np.asarray(rows, np.float64)))).all()


def test_parts_of_packed_vectors_are_theirs():
    tree = {"a": {"kernel": jnp.arange(6.0).reshape(2, 3)}, "b": {"bias": jnp.arange(6.0, 9)}}
    tree["c"] = {"kernel": jnp.arange(9.0, 13)}
    with on_gpu():
        parts = jax.jit(lambda tree: packing.unpack(packing.pack(tree), tree))(tree)
    jax.tree.map(np.testing.assert_array_equal, parts, tree)


@pytest.mark.parametrize("method", some(["none", "gsu"], "gsu"))
def test_steps_are_those_of_a_cpu(method):
    config = small(method, model__dropout=0.1)
    metrics = {}
    for where in ("cpu", "gpu"):
        with on_gpu() if where == "gpu" else contextlib.nullcontext():
            run, _, _ = workload.make_run(config, SIZES)
            metrics[where] = [jax.device_get(run.advance(step)[1]) for step in range(4)]
    for name in ("loss", "gradient_norm"):
        gpu, cpu = ([np.ravel(step[name])[0] for step in metrics[on]] for on in ("gpu", "cpu"))
        np.testing.assert_allclose(gpu, cpu, rtol=1e-5)


def test_all_items_are_scored_at_once():
    """A CPU makes as many scores in eight chunks."""
    shapes = [((256, 4), "float32"), ((30_000, 4), "float32"), ((30_000,), "float32")]
    arrays = [jax.ShapeDtypeStruct(*one) for one in (*shapes, ((256,), "int32"))]
    for where, wide in ((contextlib.nullcontext(), 3750), (on_gpu(), 30_000)):
        with where:
            program = jax.jit(lambda *arrays: scoring.score(*arrays)).lower(*arrays)
        widths = set(re.findall(r"tensor<256x(\d{4,})xf32>", program.as_text()))
        assert widths == {str(wide)}


ALL = (
    "--xla_gpu_exclude_nondeterministic_ops=true --xla_gpu_enable_triton_gemm=false "
    "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT"
)
TWO = "--xla_gpu_exclude_nondeterministic_ops=false --xla_gpu_enable_triton_gemm=true"
MODE = "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT"


@pytest.mark.parametrize(
    ("given", "expected"), [("", ALL), (TWO, f"{TWO} {MODE}"), ("flags", None)]
)
def test_flags_for_a_gpu_are_set_unless_the_user_chose(given, expected, tmp_path):
    """Where the variable does not begin with a dash, XLA reads its flags from a file."""
    if given == "flags":
        given = str(tmp_path / given)
        pathlib.Path(given).write_text("--xla_cpu_enable_fast_math=false")
    program = "from cbert import runtime; runtime.choose_for_gpu(); runtime.overlap_kernels()\n"
    program += "import os, jax; print(os.environ['XLA_FLAGS']); jax.numpy.ones(3).sum()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": given, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (expected or given)


BEFORE_CONNECTING = """
import os, types
from cbert import distributed
from configs import stylist, text
from experiments import train

def stop(*_):
    print("=CONCURRENT" in os.environ["XLA_FLAGS"])
    raise NotImplementedError

distributed.connect = stop
train._COORDINATOR = train._PROCESSES = train._PROCESS = types.SimpleNamespace(value=None)
for config in (text, stylist):
    train._CONFIG = types.SimpleNamespace(value=config.get_config())
    try:
        train.main()
    except NotImplementedError:
        pass
"""


def test_training_overlaps_the_kernels_of_sets_alone():
    """The flags are set first of all, before this process connects to others."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}
    program = [sys.executable, "-c", BEFORE_CONNECTING]
    shown = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert shown.stdout.split() == ["False", "True"], shown.stderr
