"""How fast training and evaluation are on this machine, at the paper's sizes.

    python -m experiments.benchmark --methods=none,gsu
    python -m experiments.benchmark --peer=hf --json
    python -m experiments.benchmark --scaling --picture=scaling.png

The sets are random and made in memory. What is compared takes turns, the peer in a process of
its own. --scaling takes configs/stylist.py, the first of --methods, and three rounds of eight
steps.
"""

import copy
import json
import os
import pathlib
import platform
import time
from typing import Any

import jax
import numpy as np
import psutil
from absl import flags

from cbert.benchmark import measure, peer, scaling, workload
from cbert.errors import UserError
from cbert.evaluation.compare import align
from cbert.model import conditioning
from experiments import command, config_flag

_CONFIG = config_flag.define("configs/stylist.py")
_METHODS = flags.DEFINE_list("methods", ["gsu"], "Which methods.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Rounds of all that is compared.", 1)
_STEPS = flags.DEFINE_integer("steps", 0, "Steps of a round; 0: an epoch of 8192 sets.", 0)
_ITEMS = flags.DEFINE_integer("items", 30_000, "Items of the vocabulary.", 2)
_CONTEXT = flags.DEFINE_integer("context", 736, "Width of the context.", 1)
_LENGTH = flags.DEFINE_integer("length", 0, "Items of a set; 0: the paper's four to eight.", 0)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Seeds in one program.", 1)
_PEER = flags.DEFINE_enum("peer", None, ["hf"], "Also PyTorch with transformers.")
_SCALING = flags.DEFINE_bool("scaling", False, "Curves along each size, a process a point.")
_PICTURE = flags.DEFINE_string("picture", "", "With --scaling: draw the curves to this file.")
_JSON = flags.DEFINE_bool("json", False, "Print one JSON object and nothing else.")


def main() -> None:
    """Measures and prints."""
    if not _METHODS.value:
        raise UserError("--methods is empty; give some of none,c,np,gs,gsu")
    for method in _METHODS.value:
        conditioning.method_class(method)
    if _PEER.value and (_SEEDS.value > 1 or _SCALING.value):
        raise UserError("--peer compares one run; leave out --seeds and --scaling")
    if _PICTURE.value and not _SCALING.value:
        raise UserError("--picture draws curves; add --scaling")
    if _PICTURE.value:
        scaling.check_picture(_PICTURE.value)
    if _SCALING.value:
        found = scaling.measured(_METHODS.value[0])
        text = scaling.format_curves(found["curves"])
        if _PICTURE.value:
            scaling.draw(found["curves"], _PICTURE.value)
    else:
        found = measured()
        text = format_measured(found)
    described = ", ".join(found["machine"].values())
    print(json.dumps(found) if _JSON.value else f"{described}\n\n{text}")


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    devices = jax.local_devices()
    return {
        "processor": _processor(),
        "cores": f"{os.cpu_count()} cores",
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "python": f"Python {platform.python_version()}",
        "jax": f"jax {jax.__version__}",
    }


def _processor() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def measured() -> dict[str, Any]:
    """All methods, and the peer with the first of them, in turn."""
    if _PEER.value:
        peer.check()
    trainings = [_training(_METHODS.value[0])]
    started = time.time() - psutil.Process().create_time()
    started -= sum(trainings[0].compile_seconds[1:])
    trainings += [_training(method) for method in _METHODS.value[1:]]
    peak = measure.MatmulPeak()
    compared = peer.pairs(trainings[0]) if _PEER.value else {}
    workers = [peak, *trainings]
    for pair in compared.values():
        workers += [worker for worker in pair if worker not in workers]
    for _ in range(_ROUNDS.value):
        for worker in workers:
            worker.round()
    found = {
        "machine": machine(),
        "matmul_peak_gflops": float(np.median(peak.rates)) / 1e9,
        "start_to_first_step_s": started,
        "peak_memory_mb": measure.peak_memory_mb(),
        "methods": [measure.summarize(training, peak) for training in trainings],
    }
    return {**found, "peer": peer.summarize(compared)} if compared else found


def _training(method: str) -> measure.Training:
    config = copy.deepcopy(_CONFIG.value)
    method = conditioning.short_name(method)
    config.model.method, config.data.name = method, "benchmark"
    sizes = workload.Sizes(_ITEMS.value, _CONTEXT.value, _LENGTH.value)
    return measure.Training(config, sizes, _STEPS.value, _SEEDS.value)


def format_measured(found: dict[str, Any]) -> str:
    """Tables of the methods and of the ratios to the peer."""
    rows = [["", "sets/s", "ms a step", "host", "of matmul peak", "compile s"]]
    for method in found["methods"]:
        compiled = method["compile_s"]
        rows.append(
            [
                method["method"],
                f"{method['sets_per_second']:,.0f}",
                f"{method['step_ms']:.1f}",
                f"{method['host_share']:.2%}",
                f"{method['share_of_matmul_peak']:.1%}",
                f"{len(compiled)} x {np.mean(compiled):.1f}",
            ]
        )
    text = align(rows) + (
        f"\n\nmatmul peak {found['matmul_peak_gflops']:,.0f} GFLOP/s; from the command to its "
        f"first step {found['start_to_first_step_s']:.1f} s; peak memory "
        f"{found['peak_memory_mb']:,.0f} MB"
    )
    if "peer" not in found:
        return text
    rows = [["ours over theirs", "ratio", "quartiles", "ours sets/s", "theirs sets/s"]]
    for name in ("ratio_gathered", "ratio_stock", "ratio_evaluation"):
        low, high = found["peer"][f"{name}_quartiles"]
        rates = [found["peer"][f"{name}_{whose}"] for whose in ("ours", "theirs")]
        rows.append(
            [
                name.removeprefix("ratio_"),
                f"{found['peer'][name]:.2f}",
                f"{low:.2f} to {high:.2f}",
                *(f"{rate:,.0f}" for rate in rates),
            ]
        )
    return f"{text}\n\n{align(rows)}"


if __name__ == "__main__":
    command.run(main)
