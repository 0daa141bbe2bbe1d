"""The commands as a user runs them: help, runs, checkpoints, real data."""

import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import cbert
from cbert import config as config_lib
from cbert.training.config_sections import sections
from experiments.__main__ import commands, main
from tests.conftest import ROOT, lines, refused, run


@pytest.mark.parametrize("command", commands())
def test_help(command):
    """It lists every field of a config where the command takes some."""
    text = run(command, "--help", check=0).stdout
    assert f"python -m experiments.{command}" in text
    if command in ("train", "sweep", "benchmark", "describe"):
        listed = re.findall(r"^    --config\.([\w.]+)=", text, re.M)
        assert listed == list(config_lib.declarations(sections()))


def test_help_of_which_a_pager_reads_the_beginning_alone_ends_in_silence():
    command = [sys.executable, "-m", "experiments.describe", "--help"]
    pipe, silent = subprocess.PIPE, {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=pipe, stderr=pipe, env=os.environ | silent
    ) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(timeout=60)) == (b"", 0)


@pytest.mark.parametrize(
    ("flag", "outputs", "code"),
    [("fields", "2>&1 >&-", 0), ("a", "2>&-", 2)],
)
def test_a_closed_output_changes_no_code_and_goes_nowhere_else(flag, outputs, code):
    command = f"{sys.executable} -m experiments.describe --{flag} {outputs}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")


def test_letters_that_the_output_cannot_have_are_escaped(tmp_path):
    """As in a locale without UTF-8."""
    rows = ({"items": ["a", "b"], "context": {"größe ≥": n % 3}} for n in range(60))
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*rows))
    command = ["prepare", f"--input={path}", "--name=own", f"--data_dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "experiments", *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        encoding="latin-1",
    )
    assert done.returncode == 0, done.stderr
    assert "\ngröße \\u2265  numerical " in done.stdout


@pytest.mark.parametrize(
    ("command", "flag", "meant"),
    [
        ("train", "steps", "; did you mean --config.train.steps or --seeds?"),
        ("train", "model.dimension", "; did you mean --config.model.dimension?"),
        ("sweep", "seed", "; did you mean --config.seed or --seeds?"),
        ("prepare", "seedd", "; did you mean --seed?"),
        ("train", "stpes", "; did you mean --config.train.steps?"),
        ("train", "xyzzy", ""),
    ],
)
def test_an_unknown_flag_names_the_flag_or_field_that_was_meant(command, flag, meant):
    given = ["--config=configs/base.py"] if command != "prepare" else []
    error = refused(command, *given, f"--{flag}=3")
    assert error.strip() == f"error: there is no flag --{flag}{meant}"


def test_the_version(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cbert", "--version"])
    main()
    assert capsys.readouterr().out == f"cbert {cbert.__version__}\n"


OUTPUT = """
import os
import jax
from experiments import command

def main():
    print("begun")
    os.write(1, b"not waiting\\n")
    jax.devices()

command.run(main)
"""


def test_a_device_that_is_not_there_is_one_line_and_earlier_lines_are_written_at_once():
    environment = {**os.environ, "JAX_PLATFORMS": "cuda"}
    environment.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-c", OUTPUT]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("begun\nnot waiting\n", 2)
    assert done.stderr.startswith("error: JAX finds no device of JAX_PLATFORMS=cuda")
    assert done.stderr.endswith("; install JAX for it, or unset the variable\n")
    assert done.stderr.count("\n") == 1


def test_a_path_without_its_flag_is_named_rather_than_the_flag():
    for given in (["runs/gs"], ["runs/gs", "--split=test"], ["--split", "test", "runs/gs"]):
        line = refused("evaluate", *given)
        assert line == "error: unexpected argument 'runs/gs'; flags look like --name=value\n"
    assert refused("evaluate", "--split", "test").startswith(
        "error: --workdir is missing; give"
    )


@pytest.fixture(scope="module")
def run_directory(data_dir, tmp_path_factory):
    """A finished run without a context; its path has a space."""
    workdir = tmp_path_factory.mktemp("runs") / "of none"
    train(data_dir, workdir)
    return workdir


def train(data_dir, workdir):
    return run(
        "train",
        "--config=configs/base.py:none",
        f"--config.data.dir={data_dir}",
        "--config.data.name=small",
        *SMALL,
        f"--workdir={workdir}",
    )


SMALL = (
    "--config.train.steps=4",
    "--config.train.batch_size=32",
    "--config.model.dimension=16",
    "--config.model.heads=2",
    "--config.model.layers=1",
    "--config.optimizer.warmup_steps=2",
    "--config.train.length_buckets=1",
    "--config.train.eval_every=2",
)


def test_the_suggested_command_can_be_copied(run_directory, data_dir):
    suggested = shlex.split(train(data_dir, run_directory).stdout.splitlines()[-1])
    assert suggested == [
        *("python", "-m", "experiments.evaluate"),
        f"--workdir={run_directory}",
    ]


def test_work_directories_of_others(run_directory, data_dir, tmp_path):
    common = [
        "train",
        "--config=configs/base.py:np",
        f"--config.data.dir={data_dir}",
        "--config.data.name=small",
        *SMALL,
    ]
    error = refused(*common, f"--workdir={run_directory}")
    assert "belongs to another config: model.method (none there, np here)" in error
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    error = refused(*common, f"--workdir={tmp_path}/full")
    assert "is not a run's directory" in error
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_checkpoints_that_cannot_be_used(run_directory, tmp_path):
    def refusal(workdir, *flags):
        return refused("evaluate", f"--workdir={workdir}", *flags)

    assert "is not a run's work directory" in refusal(tmp_path)
    assert "use best, last or one of: 2, 4" in refusal(run_directory, "--checkpoint=3")
    assert "no context feature is called 'month'" in refusal(run_directory, "--by=month")
    absent = shutil.copytree(run_directory, tmp_path / "absent")
    for step in ("2", "4"):
        shutil.rmtree(absent / "checkpoints" / step)
    assert "no checkpoint; train first" in refusal(absent)
    gone = shutil.copytree(run_directory, tmp_path / "gone")
    (gone / "config.json").write_text("[]")
    assert "not a run's config" in refusal(gone)
    damaged = shutil.copytree(run_directory, tmp_path / "damaged")
    for step in ("2", "4"):
        shutil.rmtree(damaged / "checkpoints" / step / "params")
    assert "step 4 is damaged (params/" in refusal(damaged)
    other = shutil.copytree(run_directory, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["model"]["layers"] = 3
    (other / "config.json").write_text(json.dumps(config))
    refused_for = "belongs to another run: model.layers (1 in the checkpoint, 3 in the run)"
    assert refused_for in refusal(other)
    config["model"]["depth"] = 3
    (other / "config.json").write_text(json.dumps(config))
    assert "'model.depth'; did you mean" in refusal(other)
    assert "(another version of cbert may have written it)" in refusal(other)


@pytest.mark.soak
def test_a_run_evaluates_other_prepared_data(run_directory, tmp_path):
    run(
        "prepare",
        "--synthetic=stylist",
        "--articles=80",
        "--sets=200",
        "--name=other",
        f"--data_dir={tmp_path}",
        "--seed=0",
        f"--records={tmp_path}/records.jsonl",
    )
    done = run(
        "evaluate",
        f"--workdir={run_directory}",
        f"--data_dir={tmp_path}",
        "--name=other",
        "--masking=one",
        "--feature_importance",
    )
    assert "test split of other: 20 queries (one)" in done.stdout
    assert "r@5 %" in done.stdout
    assert "r@250" not in done.stdout  # There are 80 items.
    assert (run_directory / "eval" / "test-one-on-other.json").exists()
    assert re.search(r"^rise in cross-entropy +permuted +dropped$", done.stdout, re.M)
    assert re.search(r"^occasion +\+0.0000 ± 0.0000 +not measured$", done.stdout, re.M)
    twin = shutil.copytree(run_directory, tmp_path / "twin")
    done = run("evaluate", f"--workdir={run_directory},{twin}", "--split=validation")
    assert "+0.0000 ± 0.0000" in done.stdout
    # The written records can be prepared like any other file.
    run("prepare", f"--input={tmp_path}/records.jsonl", "--name=own", f"--data_dir={tmp_path}")


@pytest.mark.soak
def test_data_without_a_context_need_the_method_none(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*({"items": ["a", "b", "c"][n % 2 :]} for n in range(60))))
    run("prepare", f"--input={path}", "--name=bare", f"--data_dir={tmp_path}")
    common = [
        f"--config.data.dir={tmp_path}",
        "--config.data.name=bare",
        *SMALL,
        "--config.train.batch_size=16",
    ]
    error = refused("train", "--config=configs/base.py:gs", f"--workdir={tmp_path}/gs", *common)
    assert "the data have no context features" in error
    run("train", "--config=configs/base.py:none", f"--workdir={tmp_path}/none", *common)
    run("evaluate", f"--workdir={tmp_path}/none", "--split=train")


@pytest.mark.soak
def test_meals_take_the_same_road(meals, tmp_path):
    """The first 5 000 of the real meals are prepared, trained on and evaluated."""
    with gzip.open(meals, "rt") as file:
        rows = list(itertools.islice(file, 5000))
    (tmp_path / "meals.jsonl").write_text("".join(rows))
    done = run(
        "prepare",
        f"--input={tmp_path}/meals.jsonl",
        "--min_count=5",
        *("--max_items=6", "--longer=subsample"),  # Short sets compile sooner.
        "--name=meals",
        f"--data_dir={tmp_path}/data",
    )
    sizes = re.search(r"train ([\d,]+)  validation ([\d,]+)  test ([\d,]+)", done.stdout)
    assert sum(int(size.replace(",", "")) for size in sizes.groups()) == 5000
    run(
        "train",
        "--config=configs/meals.py:gsu",
        f"--config.data.dir={tmp_path}/data",
        f"--workdir={tmp_path}/run",
        *SMALL,
        "--config.train.batch_size=512",
    )
    done = run("evaluate", f"--workdir={tmp_path}/run", "--masking=one", "--by=occasion")
    assert "popularity given context" in done.stdout
    assert "breakfast" in done.stdout


def test_another_seed_makes_other_articles(tmp_path):
    item_names = []
    for seed in (1, 2):
        flags = ("--articles=72", "--sets=40", f"--seed={seed}", f"--data_dir={tmp_path}")
        run("prepare", "--synthetic=stylist", f"--name=seed{seed}", *flags)
        text = (tmp_path / f"seed{seed}" / "1.0.0" / "schema.json").read_text()
        item_names.append(json.loads(text)["items"])
    assert [len(set(items)) for items in item_names] == [72, 72]
    assert len({*item_names[0], *item_names[1]}) > 100
