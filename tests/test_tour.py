"""The tour's commands, as they stand on the page."""

import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np

import cbert
from tests.conftest import ROOT

# All commands in one process, for most of a command's time is imports.
RUNNER = """
import json, runpy, sys
import array_record.python.array_record_data_source, cbert.export, cbert.predict
from absl import app, flags
from experiments import command
app.define_help_flags()  # Flags of libraries stay.
for arguments in json.load(sys.stdin):
    print(end="\\x1e", flush=True)
    if arguments[1] == "-c":
        exec(arguments[2], {})
        continue
    before = set(flags.FLAGS)
    sys.argv = arguments[2:]
    try:
        runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)
    except SystemExit as done:
        if done.code:
            raise
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
"""


def commands() -> list[list[str]]:
    """The arguments of each command in the page's blocks."""
    page = (ROOT / "docs" / "tour.md").read_text()
    blocks = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [shlex.split(block.replace("\\\n", " ")) for block in blocks]


def test_every_command_of_the_page(tmp_path):
    found = commands()
    assert len(found) == 10
    assert all(arguments[0] == "python" for arguments in found)
    assert found[-1] == ["python", "-m", "experiments.serve", "--workdir=runs/mine"]
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(found[:-1]),  # A server does not end.
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    printed = done.stdout.split("\x1e")
    assert "parameters (without context embeddings" in printed[3]
    assert "popularity given context" in printed[5]
    assert "unknown items: blini\nmissing: age\n" in printed[6]
    for item in ("bagel", "egg", "jam", "juice", "wine", "pasta"):
        breakfast = item not in ("wine", "pasta")
        assert (item in printed[6]) <= breakfast
    assert "1,000 queries answered" in printed[7]
    assert "Explanation(item=" in printed[8]
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").open()]
    assert len(answers) == 1000
    run, copy = (
        cbert.load(tmp_path / "runs/mine"),
        cbert.load_exported(tmp_path / "exported/mine"),
    )
    items = ["coffee", "bagel", "wine"]
    one, other = (
        [score.log_probability for score in p.score(items, {"age": 30}).scores]
        for p in (run, copy)
    )
    np.testing.assert_allclose(one, other, atol=1e-5)
