"""Compiles training steps for an accelerator on a machine that has none, as XLA can.

pip install "jax[cuda13]==0.10.2" && python -m tests.compile_for h100
pip install "jax[tpu]==0.10.2" && python -m tests.compile_for v5e --set=model.remat=True

It needs the compiler of the accelerator and no device, measures no speed, and chooses no
products by their speed, so that a program that a GPU runs may have others.
"""

import argparse
import ast
import collections
import functools
import math
import os
import re
import time
from typing import Any
from unittest import mock

import jax
import ml_collections

from cbert import parallel, runtime, text_table
from cbert.benchmark import workload
from cbert.model.conditioning import NAMES
from cbert.training import config as config_lib
from configs import stylist, text

# What XLA has to know of a GPU, from NVIDIA's data sheet of the H100 SXM.
H100 = """
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 }
runtime_version { major: 13 }
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: 3352320000000
  device_memory_size: 84929347584
  l2_cache_size: 52428800
  shared_memory_per_core: 233472
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  threads_per_core_limit: 2048
  threads_per_block_limit: 1024
  threads_per_warp: 32
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}
"""


def options(flags):
    """XLA's flags as JAX takes them for one program."""
    values = {"true": True, "false": False}
    return {name.removeprefix("--"): values.get(value, value) for name, value in flags.items()}


# To choose the fastest products, XLA would run them on a GPU.
FOR_GPU = {"xla_gpu_autotune_level": 0} | options(runtime.GPU_FLAGS)
TARGETS: dict[str, tuple[str, dict]] = {"h100": ("cuda", FOR_GPU), "v5e": ("tpu", {})}
LAUNCHES = re.compile(r"[)}\]] (fusion|custom-call|all-[\w-]*|reduce-scatter[\w-]*)\(")
# An instruction's name, what it makes, and the names that it is given.
INSTRUCTION = re.compile(r"\n  (?:ROOT )?(%[\w.-]+) = (.*?[)}\]]) [\w-]+\((.*?)\)")
ARRAY = re.compile(r"\b(pred|[a-z]+\d+)\[([\d,]*)\]")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--methods", default=",".join(NAMES))
    parser.add_argument("--set", action="append", default=["model.dtype='bfloat16'"])
    chosen = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", chosen.devices)
    pairs = (pair.split("=", 1) for pair in chosen.set)
    fields = {name: ast.literal_eval(value) for name, value in pairs}
    platform, always = TARGETS[chosen.target]
    devices = target_devices(chosen.target, chosen.devices)
    rows = [["", "seconds", "arguments, MB", "temporary, MB", "kernels", "moved, GB"]]
    for name, config, sizes in cases(chosen.methods.split(","), chosen.devices):
        config.update_from_flattened_dict(fields)
        begin = time.monotonic()
        overlaps = platform == "cuda" and config_lib.has_items(config)
        added = options(runtime.OVERLAP) if overlaps else {}
        program = lower(config, sizes, platform, devices).compile(always | added)
        memory = program.memory_analysis()
        sizes = (memory.argument_size_in_bytes, memory.temp_size_in_bytes)
        rows.append(
            [name, f"{time.monotonic() - begin:.0f}", *(f"{n / 1e6:,.1f}" for n in sizes)]
        )
        rows[-1].append(str(sum(kernels(program.as_text()).values())))
        rows[-1].append(f"{moved(program.as_text()) / 1e9:,.1f}")
        print(text_table.align([rows[0], rows[-1]]), flush=True)
    print(f"\n{text_table.align(rows)}")


def cases(methods, devices):
    """Names, configs and sizes: each method at the paper's size, split items, and BERT base."""
    for method in methods:
        if method != "history":  # It reads lists of items, which the workload has not.
            yield method, stylist.get_config(method), workload.Sizes(length=5)
    if devices > 1:
        config = stylist.get_config("gs")
        config.train.shard_items = True
        yield "gs, a million items split", config, workload.Sizes(1_000_000, length=5)
    for task in ("masked_language", "classification"):
        config = text.get_config(f"{task},base")
        config.data.name = "random"
        config.model.method = "gs"
        config.train.batch_size = 32
        yield f"gs, {task}, base, 32 x 512", config, workload.Sizes(length=512)


def target_devices(target: str, count: int) -> list:
    """Devices that a compiler knows and this machine has not."""
    from jax.experimental import topologies

    if target == "h100":
        topology = topologies.get_topology_desc(
            "h100", "cuda", target_config=H100, topology=f"1x1x{count}"
        )
    else:
        # There is no host of TPUs to ask for these.
        os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4"}
        os.environ |= {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
        topology = topologies.get_topology_desc("v5e:2x2", "tpu")
    return topology.devices[:count]


def lower(
    config: ml_collections.ConfigDict, sizes: workload.Sizes, platform: str, devices: Any = None
) -> jax.stages.Lowered:
    """The step of a config for a platform, `cuda` or `tpu`, with what is chosen there."""
    kind = "gpu" if platform == "cuda" else platform
    with (
        mock.patch.object(parallel, "platform", return_value=kind),
        mock.patch.object(parallel, "has_bfloat16_units", return_value=kind == "gpu"),
        mock.patch.object(jax, "pmap", functools.partial(jax.pmap, devices=devices)),
    ):
        run, _, _ = workload.make_run(config, sizes)
        fed, _, length = run.source.feed(0, 1)
        inputs = run.state, run.resident, fed, run.indices, run.key
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), inputs)
        traced = jax.jit(run.step, static_argnums=5).trace(*shapes, length)
        return traced.lower(lowering_platforms=(platform,))


def kernels(program: str) -> collections.Counter:
    """How many of each kind a GPU launches in a step; a pair of start and done counts once."""
    entry = program[program.index("\nENTRY") :]
    found = collections.Counter(LAUNCHES.findall(entry))
    return collections.Counter({k: n for k, n in found.items() if not k.endswith("-done")})


def moved(program: str) -> int:
    """The bytes that a GPU's kernels read and write in a step, but for a cache's hits."""
    entry, total, made = program[program.index("\nENTRY") :], 0, {}
    for found in INSTRUCTION.finditer(entry):
        name, shape, given = found.groups()
        made[name] = sum(_bytes(*array) for array in ARRAY.findall(shape))
        if LAUNCHES.search(found[0]):
            total += made[name] + sum(
                made.get(each, 0) for each in re.findall(r"%[\w.-]+", given)
            )
    return total


def _bytes(dtype: str, sizes: str) -> int:
    bits = 8 if dtype == "pred" else int(re.sub(r"\D", "", dtype))
    return bits // 8 * math.prod(int(size) for size in sizes.split(",") if size)


if __name__ == "__main__":
    main()
