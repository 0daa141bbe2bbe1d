"""Curves of speed and memory along one size at a time, each point a process of its own."""

import json
import os
import subprocess
import sys
from typing import Any

from cbert import progress
from cbert.errors import UserError
from cbert.evaluation.compare import align

# Beside a curve's own size: sets of five, 30 000 items, batch 256, context 736, one seed.
CURVES = {
    "items": ("--items={}", (1_000, 10_000, 100_000, 1_000_000)),
    "batch": ("--config.train.batch_size={}", (64, 256, 1024)),
    "set size": ("--length={}", (2, 5, 10, 20, 40)),
    "context": ("--context={}", (64, 256, 736, 2048)),
    "seeds": ("--seeds={}", (1, 2, 4)),
    "devices": ("", (1, 2)),
}
SHOWN = ("sets_per_second", "step_ms", "peak_memory_mb")


def measured(method: str) -> dict[str, Any]:
    """`machine`, and `curves`: curve to its points, the size and what `SHOWN` names.

    This process leaves JAX alone: an accelerator that it held its children could not have.
    """
    points = [(name, value) for name, (_, values) in CURVES.items() for value in values]
    curves, machine = {name: [] for name in CURVES}, {}
    for name, value in progress.bar(points, desc="measuring", unit=" points"):
        found = _measure(method, name, value)
        machine = machine or found["machine"]
        if name == "devices" and not found["machine"]["devices"].startswith(f"{value} x"):
            continue  # Not so many here.
        point = {**found, **found["methods"][0]}
        curves[name].append({"value": value, **{key: point[key] for key in SHOWN}})
    return {"machine": machine, "curves": curves}


def _measure(method: str, name: str, value: int) -> dict[str, Any]:
    flag = CURVES[name][0]
    arguments = [] if name == "set size" else ["--length=5"]
    arguments += [flag.format(value)] if flag else []
    environment = dict(os.environ)
    if name == "devices":
        more = f" --xla_force_host_platform_device_count={value}"
        environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + more
        visible = environment.get("CUDA_VISIBLE_DEVICES", "0,1,2,3").split(",")
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible[:value])
    command = [
        *(sys.executable, "-m", "experiments.benchmark", "--config=configs/stylist.py"),
        *("--json", "--rounds=3", "--steps=8", f"--methods={method}", *arguments),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{name} {value}: {' '.join(done.stderr.split())[-300:]}")
    return json.loads(done.stdout)


def format_curves(found: dict[str, list[dict[str, Any]]]) -> str:
    """A table of all points."""
    rows = [["", "value", "sets/s", "ms a step", "peak memory MB"]]
    for name, points in found.items():
        for point in points:
            shown = (f"{point[key]:,.0f}" for key in SHOWN)
            rows.append([name, f"{point['value']:,}", *shown])
    return align(rows)


def check_picture(path: str) -> None:
    """Refuses a picture that could not be drawn, before anything is measured."""
    if not path.endswith((".png", ".svg", ".pdf")):
        raise UserError(f"--picture is {path!r}; it must end in .png, .svg or .pdf")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(
            f'--picture needs the optional extra bench ({error}); run pip install ".[bench]"'
        ) from None


def draw(found: dict[str, list[dict[str, Any]]], path: str) -> None:
    """Time and memory a step along each size; needs the optional extra `bench`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    for axes, (name, points) in zip(figure.subplots(2, 3).flat, found.items(), strict=True):
        values = [point["value"] for point in points]
        axes.plot(values, [point["step_ms"] for point in points], "o-", label="ms a step")
        memory = [point["peak_memory_mb"] for point in points]
        axes.plot(values, memory, "s--", label="peak memory, MB")
        axes.set(xscale="log", yscale="log", xlabel=name)
        axes.set_xticks(values, [f"{value:,}" for value in values])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
