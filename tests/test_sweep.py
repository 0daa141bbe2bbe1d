"""Sweeps: what they expand to, what they refuse, and that nothing is done twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cbert.errors import UserError
from cbert.model import contextual_bert
from cbert.sweep import points
from cbert.training import config as config_lib
from configs import base, stylist
from tests.conftest import ROOT, refused, run, small


def names(**given):
    given = {"sweep": base.sweep(), "methods": [], "seeds": 1, "settings": [], **given}
    return [point.name for point in points.expand(small(), **given)]


def test_names_and_overrides():
    assert names() == [f"{method}-seed0" for method in ("none", "c", "np", "gs", "gsu")]
    assert names(methods=["gsu"], seeds=2, settings=["optimizer.learning_rate=3e-4,1e-3"]) == [
        "gsu-learning_rate=0.0003-seed0",
        "gsu-learning_rate=0.0003-seed1",
        "gsu-learning_rate=0.001-seed0",
        "gsu-learning_rate=0.001-seed1",
    ]
    point = points.expand(
        small(), base.sweep(), ["gs_constant"], 1, ["model.positions=true", "train.steps=7"]
    )[0]
    config = point.apply(small())
    assert config.model.method == "gs"
    assert config.model.constant_context is True
    assert config.model.positions is True
    assert config.train.steps == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["gus"]}, "--methods has 'gus'; it must be some of none, c, np, gs, gsu"),
        ({"settings": ["optimizer.rate=1"]}, "no field 'optimizer.rate'; is it 'optimizer."),
        ({"settings": ["train.steps=many"]}, "takes a value of type int, not 'many'"),
        ({"settings": ["train.steps"]}, "write --set=field=value,value"),
        ({"settings": ["seed=1"]}, "use --seeds"),
        ({"settings": ["data.name=a,b"]}, "on one data set; use --config.data.name"),
        ({"settings": ["train.steps=5", "train.steps=6"]}, "--set names a field twice"),
        ({"sweep": [{"model.methd": "gs"}]}, "correct the config's sweep()"),
        ({"sweep": [{"train.steps": "many"}]}, "correct the config's sweep()"),
        ({"settings": ["train.steps=5,5"]}, "two runs would be called none-steps=5-seed0"),
        ({"methods": ["np", "new_position"]}, "two runs would be called np-seed0"),
        ({"settings": ["model.heads=3"]}, "not a multiple of model.heads, 3"),
    ],
)
def test_mistakes(given, message):
    with pytest.raises(UserError, match=re.escape(message)):
        names(**given)


def test_none_is_widened_to_at_least_the_parameters_of_gsu():
    from cbert.data.stylist import schema

    config, found = stylist.get_config(), schema(100, [])
    wide = points.wide(config, found)

    def count(method, width):
        config.model.update({"method": method, "feed_forward": width})
        return contextual_bert.count(config_lib.build_model(config, found))

    assert count("none", wide - 1) < count("gsu", 256) == 921856 <= count("none", wide)
    # Where the sweep sets the sizes, it is as wide as theirs asks for.
    settings = ["model.dimension=32,64"]
    swept = points.expand(stylist.get_config(), [], [points.WIDE], 1, settings, found)
    for point in swept:
        own = point.apply(stylist.get_config())
        config.model.dimension = own.model.dimension
        fields = [own.model.feed_forward - 1, own.model.feed_forward]
        assert count("none", fields[0]) < count("gsu", 256) <= count("none", fields[1])


def sweep_command(data_dir, workdir, *more):
    return (
        "sweep",
        "--config=configs/base.py",
        *(f"--config.data.dir={data_dir}", "--config.data.name=small"),
        *("--config.model.dimension=8", "--config.model.heads=2", "--config.model.layers=1"),
        *("--config.train.batch_size=32", "--config.train.length_buckets=1"),
        *("--config.train.log_every=5", "--config.train.eval_every=1000"),
        *(f"--workdir={workdir}", *more),
    )


def test_a_killed_sweep_goes_on_and_repeats_nothing(data_dir, tmp_path):
    """Told to stop in its first run; then killed hard in its second."""
    workdir = tmp_path / "runs"
    common = sweep_command(
        data_dir, workdir, "--methods=none,gs", "--seeds=1", "--workers=1",
        "--config.train.steps=40",
    )  # fmt: skip
    listed = run(*common, "--dry_run").stdout
    assert listed.count("waiting") == 2
    assert not workdir.exists()
    command = [sys.executable, "-m", f"experiments.{common[0]}", *common[1:]]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    while not (workdir / "none-seed0" / "config.json").exists():
        assert started.poll() is None
        time.sleep(0.2)
    started.send_signal(signal.SIGINT)
    output, _ = started.communicate(timeout=30)
    assert started.returncode == 0
    assert output.endswith("stopped; the same command goes on\n")
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    done = workdir / "none-seed0" / "eval" / "test.json"
    while not done.exists():
        assert started.poll() is None
        time.sleep(0.2)
    time.sleep(1.5)
    started.send_signal(signal.SIGKILL)
    started.wait()
    written = done.stat().st_mtime_ns
    time.sleep(1.0)  # The run that was its child is told to stop, too.
    found = run(*common).stdout
    assert found.count("finished") >= 2
    assert done.stat().st_mtime_ns == written
    rows = [json.loads(line) for line in (workdir / "gs-seed0" / "metrics.jsonl").open()]
    steps = [row["step"] for row in rows if row["split"] == "train"]
    assert steps == list(range(5, 45, 5))
    # Another config in the same directory is refused before anything runs.
    error = refused(*common, "--config.train.steps=50")
    assert "belongs to another config: train.steps (40 there, 50 here)" in error


def test_seeds_together_and_a_failure(data_dir, tmp_path):
    """Two seeds in one program get a directory each; what fails is shown and stops nothing."""
    blocked = tmp_path / "runs" / "gsu-seed0" / "checkpoints"
    common = sweep_command(
        data_dir, tmp_path / "runs", "--methods=gsu,none", "--seeds=2", "--vmap_seeds",
        "--config.train.steps=5",
    )  # fmt: skip
    blocked.parent.mkdir(parents=True)
    (blocked.parent / "log.txt").write_text("")
    blocked.write_text("in the way")
    os.rename(blocked, blocked.parent / "schema.json")  # Unclaimed, but no schema.
    (blocked.parent / "schema.json").unlink()
    (blocked.parent / "schema.json").mkdir()
    done = run(*common, check=1)
    assert "gsu-seed0, gsu-seed1 failed" in done.stderr
    for seed in (0, 1):
        found = json.loads(
            (tmp_path / "runs" / f"none-seed{seed}" / "eval" / "test.json").read_text()
        )
        assert found["seed"] == seed
        assert "feature_importance" in found
