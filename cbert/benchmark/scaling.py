"""Curves of speed and memory along one size at a time; each point is measured in a process."""

import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from cbert import files, processes, progress
from cbert.benchmark import tables
from cbert.errors import UserError, missing_extra
from cbert.text_table import align

CURVES = {
    "items": (1_000, 10_000, 100_000, 1_000_000),
    "batch": (64, 256, 1024),
    "length": (2, 5, 10, 20, 40),
    "context": (64, 256, 736, 2048),
    "seeds": (1, 2, 4),
    "devices": (1, 2),
}
TITLES = {
    "items": "items",
    "batch": "examples a batch",
    "length": "items a set",
    "context": "width of the context",
    "seeds": "seeds in one program",
    "devices": "devices",
}
PLOTTED = {"step_ms": "ms a step", "peak_memory_mb": "peak memory, MB"}
MEASURED = ("examples_per_second", "step_ms", "peak_memory_mb")


def measure(command: Callable[[str, int], Sequence[str]]) -> dict[str, Any]:
    """Measures all curves.

    This process does not use JAX: an accelerator that it held would be lost to its children.

    Args:
      command: Makes, from a curve and a value, the command that measures this point and prints
        JSON.

    Returns:
      `machine`, and `curves`: the points of each, with `value` and what `MEASURED` names.
    """
    points = [(curve, value) for curve, values in CURVES.items() for value in values]
    curves: dict[str, list[dict[str, Any]]] = {curve: [] for curve in CURVES}
    machine: dict[str, Any] = {}
    for curve, value in progress.bar(points, desc="measuring", unit=" points"):
        environment = _with_devices(value) if curve == "devices" else None
        name = f"{curve} {value}"
        result = json.loads(processes.output(command(curve, value), name, environment))
        machine = machine or result["machine"]
        if curve == "devices" and not result["machine"]["devices"].startswith(f"{value} x"):
            continue  # This machine has fewer devices.
        point = {**result, **result["methods"][0]}
        curves[curve].append({"value": value, **{key: point[key] for key in MEASURED}})
    return {"machine": machine, "curves": curves}


def _with_devices(count: int) -> dict[str, str]:
    """Environment variables with which a process sees so many devices, if there are as many."""
    flags = os.environ.get("XLA_FLAGS", "")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1,2,3").split(",")
    return {
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={count}",
        "CUDA_VISIBLE_DEVICES": ",".join(visible[:count]),
    }


def format_curves(curves: dict[str, list[dict[str, Any]]]) -> str:
    """A table of all points."""
    rows = [["", "value", "examples/s", "ms a step", "peak memory MB"]]
    for name, points in curves.items():
        for point in points:
            shown = (tables.format_rate(point[key]) for key in MEASURED)
            rows.append([name, f"{point['value']:,}", *shown])
    return align(rows)


def check_plot(path: str) -> None:
    """Checks that a plot can be drawn and written, before anything is measured.

    Raises:
      OSError, UserError: it cannot; see `files.check_writable`.
    """
    if not path.endswith((".png", ".svg", ".pdf")):
        raise UserError(f"the plot's path is {path!r}; it must end in .png, .svg or .pdf")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise missing_extra("the plot", "bench", error) from None
    files.check_writable(pathlib.Path(path).expanduser().parent)


def plot(curves: dict[str, list[dict[str, Any]]], path: str) -> None:
    """Plots the time a step and the memory along each size; needs the extra `bench`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    figure = Figure(figsize=(14, 6), layout="constrained")
    rows = figure.subplots(len(PLOTTED), len(curves), sharex="col", sharey="row", squeeze=False)
    for row, (measured, title) in zip(rows, PLOTTED.items(), strict=True):
        for axes, points in zip(row, curves.values(), strict=True):
            values = [point["value"] for point in points]
            axes.plot(values, [point[measured] for point in points], "o-")
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(values, [f"{value:,}" for value in values], fontsize="small")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.grid(alpha=0.3)
            axes.minorticks_off()
        row[0].set_ylabel(title)
    for axes, name in zip(rows[-1], curves, strict=True):
        axes.set_xlabel(TITLES[name])
    target = pathlib.Path(path).expanduser()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
