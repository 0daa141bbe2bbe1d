"""Measures the speed of training and evaluation on this machine, at the paper's sizes.

    python -m experiments.benchmark --methods=none,gsu
    python -m experiments.benchmark --methods=all --length=5 --steps=8
    python -m experiments.benchmark --peer=hf --json
    python -m experiments.benchmark --config=configs/text.py:masked_language,minilm \\
      --config.train.batch_size=8 --length=32,128,512 --peer=hf
    python -m experiments.benchmark --prepared --config=configs/speeches.py:none
    python -m experiments.benchmark --scaling --plot=scaling.png
    python -m experiments.benchmark --accelerator

The examples are random and made in memory: sets, or texts where the config's task is
masked_language or classification. All that is compared takes turns, and where none is among
several methods, each is also shown relative to it. The peer runs in a process of its own, by
the Python that PEER_PYTHON names or by this one. --scaling uses configs/stylist.py, the first
of --methods, and three rounds of eight steps. --accelerator measures the paper's methods, or
those of --methods, on sets of five, or of --length, for at most --minutes.
"""

import copy
import json
import time
from typing import Any

import numpy as np
import psutil
from absl import flags
from ml_collections import config_flags

from cbert import processes, runtime
from cbert.benchmark import (
    accelerator,
    machine,
    measure,
    peer,
    scaling,
    summary,
    tables,
    workload,
)
from cbert.errors import UserError
from cbert.model import conditioning
from cbert.training import config as config_lib
from experiments import command, config_flag

_CONFIG = config_flag.define("configs/stylist.py")
_METHODS = flags.DEFINE_list(
    "methods", None, "Which methods, or `all`; by default the config's."
)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Rounds of all that is compared.", 1)
_STEPS = flags.DEFINE_integer(
    "steps", 0, "Steps of a round; 0: an epoch, which is 8192 sets or 8 batches of texts.", 0
)
_ITEMS = flags.DEFINE_integer("items", 30_000, "Items or tokens of the vocabulary.", 10)
_CONTEXT = flags.DEFINE_integer("context", 736, "Width of the context.", 1)
_LENGTH = flags.DEFINE_list(
    "length",
    ["0"],
    "Items or tokens of an example, one number or several; 0: the paper's four to eight items, "
    "or 128 tokens.",
)
_PREPARED = flags.DEFINE_bool(
    "prepared", False, "Measure on the config's prepared data in place of random examples."
)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Seeds in one program.", 1)
_PEER = flags.DEFINE_enum("peer", None, ["hf"], "Also PyTorch with transformers.")
_SCALING = flags.DEFINE_bool("scaling", False, "Curves along each size, a process a point.")
_ACCELERATOR = flags.DEFINE_bool(
    "accelerator", False, "All that the speed on a GPU depends on, a process a case."
)
_MINUTES = flags.DEFINE_float("minutes", 10, "With --accelerator: the time for all cases.", 0)
_PLOT = flags.DEFINE_string("plot", "", "With --scaling: plot the curves to this file.")
_JSON = flags.DEFINE_bool("json", False, "Print one JSON object and nothing else.")


def main() -> None:
    """Measures and prints."""
    _check()
    if config_lib.has_items(_CONFIG.value):
        runtime.overlap_kernels()  # As training does.
    if _SCALING.value:
        results = scaling.measure(_point_command)
        text = scaling.format_curves(results["curves"])
    elif _ACCELERATOR.value:
        cases = accelerator.plan(_methods(), _first(), processes.devices()[0])
        results = accelerator.measure(cases, _case_command, _MINUTES.value)
        text = accelerator.format_results(results)
    else:
        points = [measured(length) for length in command.whole_numbers(_LENGTH)]
        results = {"machine": machine.describe(), **points[0]}
        if len(points) > 1:
            results = {"machine": machine.describe(), "points": points}
        text = tables.format_points(points)
    described = ", ".join(results["machine"].values())
    print(json.dumps(results) if _JSON.value else f"{described}\n\n{text}")
    if _PLOT.value:  # What took long to measure is shown, whether or not it can be drawn.
        scaling.plot(results["curves"], _PLOT.value)


def _check() -> None:
    """Refuses flags that do not go together."""
    for method in _methods():
        conditioning.method_class(method)
    lengths = command.whole_numbers(_LENGTH)
    if _PEER.value and (_SEEDS.value > 1 or _SCALING.value):
        raise UserError("--peer compares one run; leave out --seeds and --scaling")
    if _PREPARED.value and (_PEER.value or _SCALING.value):
        raise UserError("--prepared measures our training; leave out --peer and --scaling")
    if _PREPARED.value:
        command.refuse((_ITEMS, _CONTEXT, _LENGTH), "random examples; leave out --prepared")
    if _SCALING.value:
        overrides = config_flags.get_override_values(flags.FLAGS["config"])
        names = ["config", *(f"config.{name}" for name in overrides)]
        names += ["rounds", "steps", "items", "context", "length", "seeds"]
        sizes = [flags.FLAGS[name] for name in names]
        command.refuse(sizes, "a measurement of one size; leave out --scaling")
    alone = _SCALING, _PREPARED, _PEER, _SEEDS
    if _ACCELERATOR.value and (len(lengths) > 1 or any(flag.present for flag in alone)):
        raise UserError(
            "--accelerator measures seeds and the peer, too; leave out --seeds, --peer, "
            "--scaling and --prepared, and give one --length"
        )
    if _PLOT.value and not _SCALING.value:
        raise UserError("--plot draws curves; add --scaling")
    if _PEER.value:
        peer.check()
    if _PLOT.value:
        scaling.check_plot(_PLOT.value)


def _methods() -> list[str]:
    """The methods to measure."""
    if _METHODS.value is not None:
        return config_flag.methods(_METHODS.value)
    return list(conditioning.PAPER) if _ACCELERATOR.value else [_config_method()]


def _first() -> str:
    """The config's method where it is among those to measure, otherwise the first of them."""
    return _config_method() if _config_method() in _methods() else _methods()[0]


def _config_method() -> str:
    return _CONFIG.value.model.method


def _point_command(curve: str, value: int) -> tuple[str, ...]:
    """The command that measures one point: all sizes but the curve's own stay the same."""
    arguments = {"config": "configs/stylist.py", "methods": _methods()[0], "length": 5}
    arguments |= {"rounds": 3, "steps": 8, "json": True}
    if curve != "devices":
        arguments["config.train.batch_size" if curve == "batch" else curve] = value
    return processes.command("experiments.benchmark", arguments)


def _case_command(case: accelerator.Case) -> tuple[str, ...]:
    """The command that measures one case, at the sizes that this one was given."""
    flag = flags.FLAGS["config"]
    fields = {**config_flags.get_override_values(flag), **case.fields}
    arguments = {"config": config_flags.get_config_filename(flag), "methods": case.method}
    arguments |= {f"config.{name}": value for name, value in fields.items()}
    length = command.whole_numbers(_LENGTH)[0] if _LENGTH.present else accelerator.LENGTH
    arguments |= {each.name: each.value for each in (_ROUNDS, _STEPS, _ITEMS, _CONTEXT)}
    arguments |= {"length": length, "seeds": case.seeds, "json": True}
    if case.peer:
        arguments["peer"] = "hf"
    return processes.command("experiments.benchmark", arguments)


def measured(length: int) -> dict[str, Any]:
    """Measures all methods in turn at one length, and the peer beside the first of them."""
    first, *others = _methods()
    trainings = [_training(first, length)]
    started = time.time() - psutil.Process().create_time()
    started -= sum(trainings[0].compile_seconds[1:])
    trainings += [_training(method, length) for method in others]
    peak = measure.MatmulPeak(_CONFIG.value.model.dtype)
    compared = peer.Comparison(trainings[0]) if _PEER.value else None
    workers: list[Any] = [peak, *trainings, *(compared.workers if compared else ())]
    for _ in range(_ROUNDS.value):
        for worker in workers:
            worker.round()
    results = {
        "length": length,
        "matmul_peak_gflops": float(np.median(peak.rates)) / 1e9,
        "start_to_first_step_s": started,
        "peak_memory_mb": measure.peak_memory_mb(),
        "methods": summary.summarize(trainings, peak),
    }
    if compared:
        compared.close()
        results["peer"] = compared.summary()
    return results


def _training(method: str, length: int) -> measure.TrainingRounds:
    config = copy.deepcopy(_CONFIG.value)
    config.model.method = method
    sizes = None
    if not _PREPARED.value:
        config.data.name = "benchmark"
        sizes = workload.Sizes(_ITEMS.value, _CONTEXT.value, length)
    return measure.TrainingRounds(config, sizes, _STEPS.value, _SEEDS.value)


if __name__ == "__main__":
    command.run(main)
