"""The package as it is installed, away from the repository; and a whole search."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import cbert
from tests.conftest import ROOT, run

RECORDS = [
    {"items": [f"item{n % 7}", f"item{n % 5 + 7}"], "context": {"day": "mo" if n % 3 else "tu"}}
    for n in range(120)
]
QUICK = ("--config.train.steps=9", "--config.train.eval_every=3", "--config.model.layers=1")


def printed_by(command, folder, environment) -> str:
    """What a command prints, in that folder."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.soak
def test_the_commands_of_an_installed_package_run_anywhere(tmp_path):
    source, target, work = (tmp_path / name for name in ("source", "target", "work"))
    work.mkdir()
    for name in ("cbert", "configs", "experiments"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    install = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation")
    flags = ("--no-index", "--quiet", f"--target={target}", str(source))
    subprocess.run([*install, *flags], check=True)
    environment = {**os.environ, "PYTHONPATH": str(target)}
    (work / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RECORDS))

    def command(*arguments):
        return printed_by([target / "bin" / "cbert", *arguments], work, environment)

    assert "  train  " in command()
    printed = command("prepare", "--input=mine.jsonl", "--name=mine")
    assert "\n  cbert train --config=data/mine/config.py:gs --workdir=runs/mine" in printed
    config = "--config=configs/base.py:gs", "--config.data.name=mine"
    printed = command("train", *config, *QUICK, "--config.train.batch_size=16", "--workdir=run")
    assert "run: " in printed
    assert ", behind co-occurrence (" in printed
    assert "popularity" in command("evaluate", "--workdir=run")
    version = f"import cbert; print(cbert.__version__, {str(target)!r} in cbert.__file__)"
    assert printed_by([sys.executable, "-c", version], work, environment) == (
        f"{cbert.__version__} True\n"
    )


def test_the_printed_commands_run_where_they_were_printed(tmp_path):
    """With the script that pip writes, in another directory than the repository's root."""
    script, work = tmp_path / "bin" / "cbert", tmp_path / "work"
    for folder in (script.parent, work):
        folder.mkdir()
    body = "from experiments.__main__ import main\n\nmain()\n"
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o755)
    (work / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RECORDS))
    path = f"{script.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}

    def shell(command):
        return printed_by(["sh", "-c", command], work, environment)

    data = f"--input=mine.jsonl --name=mine --data_dir={tmp_path}/data"
    _, advised = shell(f"cbert prepare {data}").split("train it, from this directory, with\n")
    train = advised.splitlines()[0].strip()
    assert (
        train
        == f"cbert train --config={tmp_path}/data/mine/config.py:gs --workdir=runs/mine/gs"
    )
    trained = shell(f"{train} {' '.join(QUICK)} --config.train.batch_size=16")
    assert trained.endswith("evaluate it with\n  cbert evaluate --workdir=runs/mine/gs\n")
    assert (work / "runs" / "mine" / "gs" / "finished.json").exists()


@pytest.mark.soak
def test_a_search_reads_no_test_split_and_is_resumed(tmp_path):
    data = cbert.prepare(RECORDS, "mine", tmp_path / "data")
    for path in data.directory.glob("mine-test.*"):
        path.unlink()
    flags = (f"--config={data.config}:gs", *QUICK, "--trials=3", "--workers=1")
    flags += (f"--workdir={tmp_path}/tune",)
    first = run("tune", *flags).stdout
    tuned = cbert.read_config(tmp_path / "tune" / "config.py")
    assert tuned.train.steps == 9
    scores = {
        path.name: json.loads((path / "eval" / "validation.json").read_text())["results"]
        for path in (tmp_path / "tune").glob("rung*")
    }
    assert len(scores) == 4
    means = {name: one["model"]["cross_entropy"]["mean"] for name, one in scores.items()}
    best = min((mean, name) for name, mean in means.items() if name.startswith("rung0"))[1]
    assert best.replace("rung0", "rung1") in scores
    kept = {path: path.stat().st_mtime for path in tmp_path.glob("tune/rung*/finished.json")}
    again = run("tune", *flags).stdout
    assert again.splitlines()[-7:] == first.splitlines()[-7:]
    assert kept == {path: path.stat().st_mtime for path in kept}


@pytest.mark.soak
def test_a_searched_config_takes_what_the_given_one_takes(tmp_path):
    """A task for a config of texts, though its method is another than the default."""
    rows = [
        {"text": f"word{n % 7} here", "label": "ab"[n % 2], "context": {"day": "ab"[n % 3 > 0]}}
        for n in range(120)
    ]
    options = cbert.PrepareOptions(kind="text", text=cbert.TextOptions(max_length=8))
    data = cbert.prepare(rows, "mine", tmp_path / "data", options)
    flags = (*QUICK, "--trials=1", "--workers=1", f"--workdir={tmp_path}/tune")
    flags += ("--config.model.method=np",)
    done = run("tune", f"--config={data.config}:classification", *flags)
    path = tmp_path / "tune" / "config.py"
    assert f"--config={path}:classification --workdir=runs/mine/np-tuned" in done.stdout
    assert "--workdir=runs/mine/np-tuned" in path.read_text()
    (searched,) = map(cbert.read_config, (tmp_path / "tune").glob("rung*"))
    for argument in (":classification", ""):
        config = cbert.read_config(f"{path}{argument}")
        assert (config.task.name, config.model.method) == ("classification", "np")
        assert config.to_dict() == searched.to_dict()
