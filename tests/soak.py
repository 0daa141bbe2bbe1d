"""The long versions of the tests of faults; minutes to an hour.

python -m tests.soak --kills=25
python -m tests.soak --kills=0 --memory_steps=20000
"""

import argparse
import functools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy as np

from cbert.data import prepare
from cbert.data.synthetic import stylist
from cbert.data.validator import Validator
from cbert.model.conditioning import NAMES
from tests.conftest import ARTICLES, ROOT, SETS, small
from tests.test_stopping import arguments, assert_same, wait_for
from tests.test_training import restored

STEPS = 96
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--memory_steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data_dir = prepare_small(folder / "data")
        if chosen.kills:
            kill_runs(data_dir, folder, chosen.kills, random.Random(chosen.seed))
            kill_preparation(folder, random.Random(chosen.seed))
        if chosen.memory_steps:
            watch_memory(data_dir, folder, chosen.memory_steps)


def prepare_small(folder: pathlib.Path) -> str:
    """Prepares the data that the tests use."""
    validator = Validator()
    outfits = (validator(row, n) for n, row in enumerate(stylist.outfits(ARTICLES, SETS), 1))
    schema = functools.partial(stylist.schema, ARTICLES)
    prepare.prepare(outfits, folder, "small", prepare.PrepareOptions(), schema)
    return str(folder)


def kill_runs(data_dir: str, folder: pathlib.Path, kills: int, chance: random.Random) -> None:
    """Kills runs of every method at random instants until `kills` were killed."""
    killed = dict.fromkeys(NAMES, 0)
    whole = {}
    number = 0
    while sum(killed.values()) < kills:
        method = list(NAMES)[number % len(NAMES)]
        command = functools.partial(arguments, data_dir, method=method, steps=STEPS)
        if method not in whole:
            whole[method] = folder / f"whole-{method}"
            began = time.monotonic()
            subprocess.run(command(whole[method]), cwd=ROOT, check=True, **QUIET)
            seconds = time.monotonic() - began
            evaluate(whole[method])
        workdir = folder / f"broken-{number}"
        for _ in range(5):
            process = subprocess.Popen(command(workdir), cwd=ROOT, **QUIET)
            try:
                code = process.wait(timeout=chance.uniform(0.2 * seconds, 0.8 * seconds))
                assert code == 0
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed[method] += 1
        else:
            subprocess.run(command(workdir), cwd=ROOT, check=True, **QUIET)
        check_same(workdir, whole[method])
        number += 1
        print(f"{sum(killed.values())} kills survived, {number} runs: {killed}", flush=True)


def evaluate(workdir: pathlib.Path) -> None:
    command = [sys.executable, "-m", "experiments.evaluate", f"--workdir={workdir}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def check_same(workdir: pathlib.Path, whole: pathlib.Path) -> None:
    """Asserts equal bits in parameters, metrics, TensorBoard's steps and results by example."""
    assert_same(workdir, whole)
    evaluate(workdir)
    table, expected = ((path / "eval" / "test.parquet") for path in (workdir, whole))
    assert table.read_bytes() == expected.read_bytes()


def kill_preparation(folder: pathlib.Path, chance: random.Random) -> None:
    """Kills preparations at random instants: a data set is either whole or absent."""
    target = folder / "made"
    command = [
        *(sys.executable, "-m", "experiments.prepare", "--synthetic=stylist"),
        *("--articles=80", "--sets=3000", "--name=made", f"--data_dir={target}"),
    ]
    for kills in range(1, 6):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(2, 9))
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        there = (target / "made" / "1.0.0").exists()
        assert there == (target / "made" / "1.0.0" / "schema.json").exists()
        if there:
            break
        print(f"{kills} kills of a preparation: nothing left half-written", flush=True)
    if not there:
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        assert {path.name for path in (target / "made").iterdir()} == {"1.0.0", "lock"}


def watch_memory(data_dir: str, folder: pathlib.Path, steps: int) -> None:
    """Prints the process's memory over a long run."""
    import psutil

    workdir = folder / "long"
    command = arguments(data_dir, workdir, "gsu", steps)
    command += ["--config.train.log_every=100", "--config.train.eval_every=500"]
    command += ["--config.train.checkpoint_every=500"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_for(workdir / "metrics.jsonl", process)
    seen = []
    while process.poll() is None:
        try:
            memory = psutil.Process(process.pid).memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            break
        last = (workdir / "metrics.jsonl").read_text().splitlines()[-1]
        seen.append((json.loads(last)["step"], memory))
        time.sleep(1)
    assert process.wait() == 0
    kept = sorted(path.name for path in (workdir / "checkpoints").iterdir())
    quarter = len(seen) // 4
    first, last = np.mean([m for _, m in seen[quarter : 2 * quarter]]), seen[-1][1]
    print(
        f"{steps} steps: {first:,.0f} MB in the second quarter, {last:,.0f} MB at the end; "
        f"checkpoints kept: {kept}"
    )
    assert restored(small(), workdir)[0] == steps


if __name__ == "__main__":
    main()
