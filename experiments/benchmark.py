"""Measures the speed of training and evaluation on this machine, at the paper's sizes.

    python -m experiments.benchmark --methods=none,gsu
    python -m experiments.benchmark --peer=hf --json
    python -m experiments.benchmark --scaling --plot=scaling.png

The examples are random and made in memory. All that is compared takes turns; the peer runs in a
process of its own. --scaling uses configs/stylist.py, the first of --methods, and three rounds
of eight steps.
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

from cbert import processes
from cbert.benchmark import measure, peer, scaling, workload
from cbert.errors import UserError
from cbert.evaluation.compare import align
from cbert.model import conditioning
from experiments import command, config_flag

_CONFIG = config_flag.define("configs/stylist.py")
_METHODS = flags.DEFINE_list("methods", ["gsu"], "Which methods.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Rounds of all that is compared.", 1)
_STEPS = flags.DEFINE_integer("steps", 0, "Steps of a round; 0: 8192 examples.", 0)
_ITEMS = flags.DEFINE_integer("items", 30_000, "Items of the vocabulary.", 2)
_CONTEXT = flags.DEFINE_integer("context", 736, "Width of the context.", 1)
_LENGTH = flags.DEFINE_integer(
    "length", 0, "Items of an example; 0: the paper's four to eight.", 0
)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Seeds in one program.", 1)
_PEER = flags.DEFINE_enum("peer", None, ["hf"], "Also PyTorch with transformers.")
_SCALING = flags.DEFINE_bool("scaling", False, "Curves along each size, a process a point.")
_PLOT = flags.DEFINE_string("plot", "", "With --scaling: plot the curves to this file.")
_JSON = flags.DEFINE_bool("json", False, "Print one JSON object and nothing else.")


def main() -> None:
    """Measures and prints."""
    if not _METHODS.value:
        raise UserError(f"--methods is empty; give some of {','.join(conditioning.NAMES)}")
    for method in _METHODS.value:
        conditioning.method_class(method)
    if _PEER.value and (_SEEDS.value > 1 or _SCALING.value):
        raise UserError("--peer compares one run; leave out --seeds and --scaling")
    if _PLOT.value and not _SCALING.value:
        raise UserError("--plot draws curves; add --scaling")
    if _PLOT.value:
        scaling.check_plot(_PLOT.value)
    if _SCALING.value:
        results = scaling.measure(_point_command)
        text = scaling.format_curves(results["curves"])
        if _PLOT.value:
            scaling.plot(results["curves"], _PLOT.value)
    else:
        results = measured()
        text = format_measured(results)
    described = ", ".join(results["machine"].values())
    print(json.dumps(results) if _JSON.value else f"{described}\n\n{text}")


def _point_command(curve: str, value: int) -> tuple[str, ...]:
    """The command that measures one point: all sizes but the curve's own stay the same."""
    flags = {"config": "configs/stylist.py", "methods": _METHODS.value[0], "length": 5}
    flags |= {"rounds": 3, "steps": 8, "json": True}
    if curve != "devices":
        flags["config.train.batch_size" if curve == "batch" else curve] = value
    return processes.command("experiments.benchmark", flags)


def machine() -> dict[str, str]:
    """The machine and the software that the measurements were taken with."""
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
    """Measures all methods in turn, and the peer beside the first of them."""
    if _PEER.value:
        peer.check()
    trainings = [_training(_METHODS.value[0])]
    started = time.time() - psutil.Process().create_time()
    started -= sum(trainings[0].compile_seconds[1:])
    trainings += [_training(method) for method in _METHODS.value[1:]]
    peak = measure.MatmulPeak()
    compared = peer.pairs(trainings[0]) if _PEER.value else {}
    workers: list[Any] = [peak, *trainings]
    for pair in compared.values():
        workers += [worker for worker in pair if worker not in workers]
    for _ in range(_ROUNDS.value):
        for worker in workers:
            worker.round()
    results = {
        "machine": machine(),
        "matmul_peak_gflops": float(np.median(peak.rates)) / 1e9,
        "start_to_first_step_s": started,
        "peak_memory_mb": measure.peak_memory_mb(),
        "methods": [measure.summarize(training, peak) for training in trainings],
    }
    return {**results, "peer": peer.summarize(compared)} if compared else results


def _training(method: str) -> measure.TrainingRounds:
    config = copy.deepcopy(_CONFIG.value)
    method = conditioning.short_name(method)
    config.model.method, config.data.name = method, "benchmark"
    sizes = workload.Sizes(_ITEMS.value, _CONTEXT.value, _LENGTH.value)
    return measure.TrainingRounds(config, sizes, _STEPS.value, _SEEDS.value)


def format_measured(results: dict[str, Any]) -> str:
    """Tables of the methods and of the ratios to the peer."""
    rows = [["", "examples/s", "ms a step", "host", "of matmul peak", "compile s"]]
    for method in results["methods"]:
        compiled = method["compile_s"]
        rows.append(
            [
                method["method"],
                f"{method['examples_per_second']:,.0f}",
                f"{method['step_ms']:.1f}",
                f"{method['host_fraction']:.2%}",
                f"{method['fraction_of_matmul_peak']:.1%}",
                f"{len(compiled)} x {np.mean(compiled):.1f}",
            ]
        )
    text = align(rows) + (
        f"\n\nmatmul peak {results['matmul_peak_gflops']:,.0f} GFLOP/s; from the command to "
        f"its first step {results['start_to_first_step_s']:.1f} s; peak memory "
        f"{results['peak_memory_mb']:,.0f} MB"
    )
    if "peer" not in results:
        return text
    rows = [["ours over theirs", "ratio", "quartiles", "our examples/s", "their examples/s"]]
    for name in ("ratio_gathered", "ratio_stock", "ratio_evaluation"):
        low, high = results["peer"][f"{name}_quartiles"]
        rates = [results["peer"][f"{name}_{whose}"] for whose in ("ours", "theirs")]
        rows.append(
            [
                name.removeprefix("ratio_"),
                f"{results['peer'][name]:.2f}",
                f"{low:.2f} to {high:.2f}",
                *(f"{rate:,.0f}" for rate in rates),
            ]
        )
    return f"{text}\n\n{align(rows)}"


if __name__ == "__main__":
    command.run(main)
