"""The plan of --accelerator, its time limit, and its tables; speeds are given, not measured."""

import dataclasses
import json
import sys

import pytest

from cbert.benchmark import accelerator
from cbert.model.conditioning import PAPER
from tests.conftest import run

# One method's part of Table 1, 3 x 30 x 380 000 sets, takes an hour at this speed.
HOUR = 9_500


def test_each_case_changes_one_thing_and_the_base_comes_first():
    cases = accelerator.plan(PAPER, "gsu", "gpu")
    assert [case.method for case in cases[:5]] == list(PAPER)
    assert {case.setting for case in cases[:5]} == {("tf32", "fast", "8", "1")}
    changes = {
        ("tf32", "fast", "8", "3"),
        ("float32", "fast", "8", "1"),
        ("bfloat16", "fast", "8", "1"),
        ("tf32", "fast", "1", "1"),
        ("tf32", "plain", "8", "1"),
    }
    assert [case.peer for case in cases].index(True) == 5
    assert {case.setting for case in cases[6:11]} == changes
    assert {case.method for case in cases[5:11]} == {"gsu"}
    assert {(case.method, case.setting) for case in cases[11:]} == {
        (method, change) for method in PAPER[:4] for change in changes
    }
    assert len(cases) == len(set(cases)) == 31


def test_a_cpu_has_no_tf32_and_takes_the_fast_kernels():
    cases = accelerator.plan(["none"], "none", "cpu")
    assert cases[0].setting == ("float32", "fast", "8", "1")
    assert {case.precision for case in cases} == {"float32", "bfloat16"}
    [bfloat16] = [case for case in cases if case.precision == "bfloat16"]
    assert bfloat16.fields["model.dtype"] == "bfloat16"
    assert cases[0].fields["model.dtype"] == "float32"


def printing(case, speed=2.0 * HOUR):
    """A command that prints what the benchmark does for a case."""
    method = {"examples_per_second": speed, "step_ms": 1.25, "of_peak": 0.125, "compile_s": [2]}
    result = {"machine": {"devices": "1 x GPU"}, "methods": [method]}
    result |= {"peak_memory_mb": 1500, "matmul_peak_gflops": 60_000}
    if case.peer:
        compared = {
            "": 1.5,
            "_quartiles": [1, 2],
            "_ours": 300,
            "_theirs": 200,
            "_form": "stock",
        }
        names = ("ratio_strongest", "ratio_stock", "ratio_evaluation")
        result["peer"] = {name + key: compared[key] for name in names for key in compared}
        result["peer"]["matmul_peak_gflops"] = 70_000
    return sys.executable, "-S", "-c", f"print({json.dumps(result)!r})"


def failing(case):
    """A command that prints the precision of its products as a user's mistake, and fails."""
    program = (
        "import os, sys; p = os.environ.get('JAX_DEFAULT_MATMUL_PRECISION');"
        "sys.exit(f'Some log.\\nerror: no memory for {p}\\nSome advice.')"
    )
    return sys.executable, "-S", "-c", program


def test_failed_cases_are_lines_of_the_table():
    """Another process fails for float32, and tells which products it was to use."""
    cases = accelerator.plan(["gsu"], "gsu", "gpu")

    def command(case):
        if case.precision == "float32":
            return failing(case)
        return printing(case, HOUR if case.dispatch == 1 else 2 * HOUR)

    results = accelerator.measure(cases, command, minutes=10)
    assert results["machine"] == {"devices": "1 x GPU"}
    assert results["table_1"] == []
    rows = {
        (*dataclasses.replace(case, method="").setting, case.peer): row
        for case, row in zip(cases, results["cases"], strict=True)
    }
    assert rows["float32", "fast", "8", "1", False]["error"] == "failed: no memory for float32"
    text = accelerator.format_results(results)
    table = [line.split() for line in text.splitlines()]
    speed = ["12.5%", "60,000", "1,500"]
    assert ["gsu", "tf32", "fast", "1", "1", "9,500", "0.50", "1.25", *speed] in table
    assert ["gsu", "tf32", "fast", "8", "3", "19,000", "1.00", "1.25", *speed] in table
    assert ["gsu", "float32", "fast", "8", "1", *"------"] in table
    assert "failed: no memory for float32: gsu float32 fast 8 1" in text.splitlines()
    assert ["strongest", "1.50", "1.00", "to", "2.00", "300", "200", "stock"] in table
    assert "their matmul peak 70,000 GFLOP/s" in text.splitlines()
    assert "no setting has none, c, np, gs, gsu" in text


def test_a_case_beyond_the_time_is_killed_and_named():
    sleep = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
    cases = accelerator.plan(["none"], "none", "cpu")[:2]
    results = accelerator.measure(cases, lambda case: sleep, minutes=0.002)
    assert [row["error"] for row in results["cases"]] == ["no time was left"] * 2
    assert "no time was left: none float32 fast 8 1; none and peer float32 fast 8 1" in (
        accelerator.format_results(results)
    )


def test_the_hours_of_table_1():
    """Four methods take an hour and one takes half of that; a lacking method has no hours."""
    cases = accelerator.plan(PAPER, "gsu", "cpu")
    rows = [
        {**dataclasses.asdict(case), "examples_per_second": HOUR * (1 + (case.method == "c"))}
        for case in cases
        if case.seeds == 1 and (case.method, case.dispatch) != ("np", 1)
    ]
    hours = {tuple(each["setting"]): each["hours"] for each in accelerator.table_1_hours(rows)}
    assert hours == {
        ("float32", "fast", "8", "1"): pytest.approx(4.5),
        ("float32", "plain", "8", "1"): pytest.approx(4.5),
        ("bfloat16", "fast", "8", "1"): pytest.approx(4.5),
    }


@pytest.mark.soak
def test_all_cases_of_a_small_model():
    """Each case ran as it says, so that three seeds have three times the examples of a step."""
    sizes = ("--rounds=1", "--steps=8", "--items=50", "--context=10", "--length=3")
    model = ("--config.model.layers=1", "--config.model.dimension=8", "--config.model.heads=2")
    done = run("benchmark", "--accelerator", "--json", "--methods=none", *sizes, *model)
    results = json.loads(done.stdout)
    for row in results["cases"]:
        if row["peer"] and "error" in row:
            assert 'pip install ".[bench]"' in row["error"]
            continue
        examples = row["examples_per_second"] * row["step_ms"] / 1000
        assert examples == pytest.approx(256 * row["seeds"])
        assert row["peak_memory_mb"] > 0
    assert len(results["cases"]) == 6
    assert "1 x cpu" in results["machine"]["devices"]
