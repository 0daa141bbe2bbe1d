"""The commands of the two tours run as their pages show them."""

import collections
import gzip
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import cbert
from cbert.data.synthetic import stylist
from tests.conftest import ARTICLES, ROOT

# All commands run in one process, because imports take most of a command's time.
RUNNER = """
import json, runpy, sys
import array_record.python.array_record_data_source
import cbert.inference.load, cbert.inference.stablehlo
from absl import app, flags
from experiments import command
app.define_help_flags()  # The flags of the libraries stay defined.
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
    sys.modules.pop("experiments.query_flags", None)  # It defines flags of two commands.
"""


def commands(name: str = "tour.md") -> list[list[str]]:
    """The arguments of each command in the page's blocks."""
    page = (ROOT / "docs" / name).read_text()
    blocks = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [shlex.split(block.replace("\\\n", " ")) for block in blocks]


def run_all(commands: list[list[str]], folder: pathlib.Path) -> list[str]:
    """Runs the commands, and returns what each of them printed."""
    (folder / "configs").symlink_to(ROOT / "configs")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(commands),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.split("\x1e")[1:]


@pytest.mark.soak
@pytest.mark.parametrize("data", ["stylist", "meals"])
def test_the_tour_with_other_data(tmp_path, data, request):
    """Runs the page's commands on other records, with their items instead of its foods."""
    if data == "meals":
        with gzip.open(request.getfixturevalue("meals"), "rt") as file:
            records = [json.loads(line) for line in itertools.islice(file, 2000)]
    else:
        records = list(stylist.outfits(ARTICLES, [1600, 200, 200]))
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    common = collections.Counter(item for row in records for item in row["items"])
    names = [json.dumps(name)[1:-1] for name, _ in common.most_common(4)]
    lines = commands()[1:-1]
    for old, new in zip(("coffee", "bagel", "wine", "juice"), names, strict=True):
        lines = [[text.replace(f'"{old}"', f'"{new}"') for text in line] for line in lines]
    printed = run_all(lines, tmp_path)
    assert "popularity given context" in printed[3]
    assert "unknown items: blini" in printed[4]
    assert "2,000 queries completed" in printed[5]
    assert "Explanation(item=" in printed[6]
    assert (tmp_path / "exported/mine/card.json").exists()


def test_every_command_of_the_page(tmp_path):
    lines = commands()
    assert len(lines) == 10
    assert all(arguments[0] == "python" for arguments in lines)
    assert lines[-1] == ["python", "-m", "experiments.serve", "--workdir=runs/mine"]
    printed = run_all(lines[:-1], tmp_path)  # A server does not end.
    assert "parameters (without context embeddings" in printed[2]
    assert "popularity given context" in printed[4]
    assert "unknown items: blini\nmissing: age\n" in printed[5]
    for item in ("bagel", "egg", "jam", "juice", "wine", "pasta"):
        breakfast = item not in ("wine", "pasta")
        assert (item in printed[5]) <= breakfast
    assert "1,000 queries completed" in printed[6]
    assert "Explanation(item=" in printed[7]
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


def test_every_command_of_the_page_about_text(tmp_path):
    lines = commands("tour_text.md")
    assert len(lines) == 10
    assert lines[-1] == ["python", "-m", "experiments.serve", "--workdir=runs/replies"]
    printed = run_all(lines[:-1], tmp_path)
    assert "majority given context" in printed[4]
    predicted = [json.loads(line) for line in (tmp_path / "predicted.jsonl").open()]
    labels = [json.loads(line)["label"] for line in (tmp_path / "replies.jsonl").open()]
    first = [prediction["labels"][0]["label"] for prediction in predicted]
    assert np.mean([one == other for one, other in zip(first, labels, strict=True)]) > 0.95
    probe = json.loads((tmp_path / "features" / "probe.json").read_text())
    assert probe
    query = "7, please", {"asked": "people", "turn": 2}
    run, copy = (
        cbert.load(tmp_path / "runs/replies"),
        cbert.load_exported(tmp_path / "exported/replies"),
    )
    one, other = (p.predict(*query, k=1).labels[0] for p in (run, copy))
    assert one.label == other.label == "people"
    assert one.probability == pytest.approx(other.probability, abs=1e-5)
