"""All that the speed on an accelerator depends on, each case measured in a process of its own.

The precision of products and the statistics of memory belong to a process, and a case without
enough memory then leaves the others alone.
"""

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cbert import processes, progress
from cbert.benchmark import scaling, tables
from cbert.errors import UserError
from cbert.model import conditioning
from cbert.text_table import align

# The mean length of the paper's sets: one length, because each is a program to compile.
LENGTH = 5
# A method's part of the paper's Table 1.
SEEDS, EPOCHS, SETS = 3, 30, 380_000
BFLOAT16, FLOAT32, TF32 = "bfloat16", "float32", "tf32"
# Values of JAX's option for the products of float32; bfloat16 activations need none.
_MATMUL_PRECISION = {FLOAT32: "float32", TF32: "tensorfloat32"}
_MEASURED = (*scaling.MEASURED, "of_peak", "matmul_peak_gflops", "compile_s")
_LATE = "no time was left"


@dataclasses.dataclass(frozen=True)
class Case:
    """What one process measures.

    Attributes:
      method: The conditioning method.
      precision: That of matrix products; `bfloat16` is the dtype of the activations, too.
      kernels: `model.kernels`.
      dispatch: `train.steps_per_dispatch`.
      seeds: Seeds in one program.
      peer: Whether PyTorch is measured as well.
    """

    method: str
    precision: str
    kernels: str
    dispatch: int = 8
    seeds: int = 1
    peer: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the config."""
        return {
            "model.dtype": BFLOAT16 if self.precision == BFLOAT16 else FLOAT32,
            "model.kernels": self.kernels,
            "train.steps_per_dispatch": self.dispatch,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the process."""
        if self.precision == BFLOAT16:
            return {}
        return {"JAX_DEFAULT_MATMUL_PRECISION": _MATMUL_PRECISION[self.precision]}

    @property
    def setting(self) -> tuple[str, ...]:
        """All but the method and the peer, as cells of a table."""
        return self.precision, self.kernels, str(self.dispatch), str(self.seeds)


def plan(methods: Sequence[str], lead: str, platform: str) -> list[Case]:
    """The cases, the most important first: those at the end may find no time left.

    Every method is measured in a base setting, then with one thing changed at a time. The base
    has TF32 on a GPU, which JAX takes there unasked, and the kernels that `auto` takes.

    Args:
      methods: Names of methods.
      lead: The one of them whose changes, and whose peer, come before those of the others.
      platform: JAX's backend: `cpu`, `gpu` or `tpu`.
    """
    precisions = (TF32, FLOAT32, BFLOAT16) if platform == "gpu" else (FLOAT32, BFLOAT16)
    kernels, others = ("plain", "fast") if platform == "tpu" else ("fast", "plain")
    base = Case(lead, precisions[0], kernels)
    changed = [
        replace(base, seeds=SEEDS),
        *(replace(base, precision=precision) for precision in precisions[1:]),
        replace(base, dispatch=1),
        replace(base, kernels=others),
    ]
    rest = [method for method in methods if method != lead]
    return [
        *(replace(base, method=method) for method in methods),
        replace(base, peer=True),
        *changed,
        *(replace(case, method=method) for case in changed for method in rest),
    ]


def measure(
    cases: Sequence[Case], command: Callable[[Case], Sequence[str]], minutes: float
) -> dict[str, Any]:
    """Measures the cases in turn while there is time.

    This process does not use JAX: an accelerator that it held would be lost to its children.

    Args:
      cases: Those of `plan`.
      command: Makes the command that measures a case and prints JSON.
      minutes: The time for all; a case that is not done by then is killed.

    Returns:
      `machine`, of the first case that worked; `cases`, the attributes of each with its speeds
      and memory, and `ratios` to the peer, or with `error`, why it has none of these; and
      `table_1`, see `table_1_hours`.
    """
    machine: dict[str, str] = {}
    rows, end = [], time.monotonic() + 60 * minutes
    for case in progress.bar(cases, desc="measuring", unit=" cases"):
        row = dataclasses.asdict(case)
        try:
            result = _run(case, command(case), end - time.monotonic())
            machine = machine or result["machine"]
            point = {**result, **result["methods"][0]}
            row |= {name: point[name] for name in _MEASURED}
            if case.peer:
                row["ratios"] = result["peer"]
        except UserError as error:
            row["error"] = str(error)
        rows.append(row)
    return {"machine": machine, "cases": rows, "table_1": table_1_hours(rows)}


def _run(case: Case, command: Sequence[str], seconds: float) -> Any:
    try:
        if seconds > 0:
            output = processes.output(command, "failed", case.environment, seconds)
            return json.loads(output)
    except subprocess.TimeoutExpired:
        pass
    raise UserError(_LATE)


def table_1_hours(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The hours of training that the paper's Table 1 takes at the measured speeds.

    They are those of `SEEDS` runs of each of its methods, each of `EPOCHS` epochs of `SETS`
    examples, over the examples that all seeds of a program together train on in an hour.

    Returns:
      `setting` and `hours`, for each setting in which all of these methods were measured.
    """
    speeds: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        if "error" not in row and not row["peer"]:
            speeds.setdefault(_case(row).setting, {})[row["method"]] = row[
                "examples_per_second"
            ]
    return [
        {
            "setting": list(setting),
            "hours": sum(SEEDS * EPOCHS * SETS / of[name] for name in conditioning.PAPER)
            / 3600,
        }
        for setting, of in speeds.items()
        if of.keys() >= set(conditioning.PAPER)
    ]


def _case(row: Mapping[str, Any]) -> Case:
    names = (field.name for field in dataclasses.fields(Case))
    return Case(**{name: row[name] for name in names})


def format_results(results: Mapping[str, Any]) -> str:
    """Tables of the cases, of the ratios to the peer, and of the hours of Table 1."""
    rows = results["cases"]
    parts = [_format_cases(rows), *_format_errors(rows)]
    if compared := [{"peer": row["ratios"]} for row in rows if "ratios" in row]:
        parts.append(tables.format_ratios(compared))
    hours = [[*each["setting"], f"{each['hours']:.2f}"] for each in results["table_1"]]
    title = f"hours for Table 1: {SEEDS} seeds, {EPOCHS} epochs of {SETS:,} sets"
    if hours:
        parts.append(align([[*_SETTING, title], *hours]))
    else:
        parts.append(f"no {title}, for which no setting has {', '.join(conditioning.PAPER)}")
    return "\n\n".join(parts)


_SETTING = ("precision", "kernels", "steps a dispatch", "seeds")


def _format_cases(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row a case; `over base` is its speed over that of the method's first case."""
    heading = ["method", *_SETTING, "examples/s", "over base", "ms a step", "of matmul peak"]
    shown = [[*heading, "matmul peak GFLOP/s", "peak memory MB"]]
    first = {row["method"]: row for row in reversed(rows)}
    for row in rows:
        numbers = ["-"] * 6
        if "error" not in row:
            speed, base = row["examples_per_second"], first[row["method"]]
            numbers = [
                tables.format_rate(speed),
                "-" if "error" in base else f"{speed / base['examples_per_second']:.2f}",
                f"{row['step_ms']:.2f}",
                f"{row['of_peak']:.1%}",
                f"{row['matmul_peak_gflops']:,.0f}",
                f"{row['peak_memory_mb']:,.0f}",
            ]
        shown.append([*_label(row), *numbers])
    return align(shown)


def _label(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["method"] + (" and peer" if row["peer"] else ""), *_case(row).setting


def _format_errors(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each error as a line that names the cases that ended in it."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if "error" in row:
            names.setdefault(row["error"], []).append(" ".join(_label(row)))
    return [f"{error}: {'; '.join(cases)}" for error, cases in names.items()]
