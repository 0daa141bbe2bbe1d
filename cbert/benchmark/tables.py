"""The benchmark's results as tables."""

from typing import Any

import numpy as np

from cbert.benchmark import peer
from cbert.text_table import align


def format_points(points: list[dict[str, Any]]) -> str:
    """Tables of the methods and of the ratios to the peer, with a row for each length."""
    several = len(points) > 1
    heading = ["", "examples/s", "tokens/s", "padding", "ms a step", "host"]
    rows = [[*heading, "of matmul peak", "compile s"]]
    for point in points:
        for method in point["methods"]:
            compiled = method["compile_s"]
            rows.append(
                [
                    _label(method["method"], point, several),
                    format_rate(method["examples_per_second"]),
                    format_rate(method["tokens_per_second"]),
                    f"{method['padding']:.1%}",
                    f"{method['step_ms']:.1f}",
                    f"{method['host_fraction']:.2%}",
                    f"{method['of_peak']:.1%}",
                    f"{len(compiled)} x {np.mean(compiled):.1f}",
                ]
            )
    first, last = points[0], points[-1]
    if "time_over_none" in first["methods"][0]:
        rows = [row + cost for row, cost in zip(rows, _costs(points), strict=True)]
    text = align(rows) + (
        f"\n\nmatmul peak {first['matmul_peak_gflops']:,.0f} GFLOP/s; from the command to "
        f"its first step {first['start_to_first_step_s']:.1f} s; peak memory "
        f"{last['peak_memory_mb']:,.0f} MB"
    )
    return f"{text}\n\n{format_ratios(points)}" if "peer" in first else text


def _costs(points: list[dict[str, Any]]) -> list[list[str]]:
    """The columns of the cost over none, with their heading."""
    rows = [["time over none", "quartiles", "operations over none"]]
    for method in (method for point in points for method in point["methods"]):
        low, high = method["time_over_none_quartiles"]
        ratios = method["time_over_none"], method["operations_over_none"]
        time_ratio, operations = (f"{ratio:.2f}" for ratio in ratios)
        rows.append([time_ratio, f"{low:.2f} to {high:.2f}", operations])
    return rows


def format_ratios(points: list[dict[str, Any]]) -> str:
    """A table of our speed over the peer's, with rows for each length."""
    several = len(points) > 1
    heading = ["ours over theirs", "ratio", "quartiles", "our examples/s", "their examples/s"]
    rows = [[*heading, "their form"]]
    for point in points:
        compared = point["peer"]
        for name in peer.FORMS:
            low, high = compared[f"{name}_quartiles"]
            rates = [compared[f"{name}_{whose}"] for whose in ("ours", "theirs")]
            rows.append(
                [
                    _label(name.removeprefix("ratio_"), point, several),
                    f"{compared[name]:.2f}",
                    f"{low:.2f} to {high:.2f}",
                    *map(format_rate, rates),
                    compared[f"{name}_form"],
                ]
            )
    peak = points[0]["peer"]["matmul_peak_gflops"]
    return f"{align(rows)}\n\ntheir matmul peak {peak:,.0f} GFLOP/s"


def format_rate(rate: float) -> str:
    """Examples or tokens a second."""
    return f"{rate:,.{1 if rate < 100 else 0}f}"


def _label(name: str, point: dict[str, Any], several: bool) -> str:
    return f"{name} {point['length']}" if several else name
