"""What the commands say unasked: how a run went, where it loses, and what they cannot do."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import cbert
from cbert import tasks
from cbert.data import columns, prepared
from cbert.errors import UserError
from cbert.evaluation import baselines, diagnosis, evaluate, evaluation_files, task_baselines
from cbert.sweep import halving
from cbert.tasks import prediction
from cbert.tasks.metric import Metric
from cbert.training import config as config_lib
from experiments.__main__ import commands
from tests.conftest import ROOT, lines, refused, small

NATS = Metric("cross_entropy", "min", "cross-entropy")
HITS = Metric("accuracy", "max", "accuracy", percent=True)


def steps(*values):
    return [(100 * number, value) for number, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((5.0, 4.0), "fewer than three validations"),
        ((5.0, 4.0, 3.5, 3.3), "still improving"),
        ((0.7435, 0.4609, 0.2533, 0.1532, 0.1097, 0.0980), "still improving"),
        ((5.0, 4.0, 3.5, 3.0, 2.995, 2.99), "on a plateau since step 400"),
        ((5.0, 3.0, 3.1, 3.3, 3.6), "over-fitting since step 200"),
        ((5.0, 4.0, 3.0, 3.1), "on a plateau since step 300"),
        ((5.0, 4.5, 4.0, 3.6, 3.3, 3.0, 2.8, 2.81), "still improving"),
        ((5.0, 4.5, 4.0, 3.6, 3.3, 3.0, 2.8, 2.95), "on a plateau since step 700"),
        ((5.0, 3.0, 3.05, 3.05, 3.05), "over-fitting since step 200"),  # By 2.5 % of 2.
        ((5.0, 3.0, 3.03, 3.03, 3.03), "on a plateau since step 200"),  # By 1.5 %.
        ((5.0, 4.0, 3.0, 2.0, 3.6), "worse at its last validation than at step 400"),
        ((5.0, 4.0, 3.0, 2.0, 3.4), "on a plateau since step 400"),  # Less than half of 3.
        ((5.0, 5.1, 5.2), "no better than at its first validation, at step 100"),
    ],
)
def test_the_course_of_a_run(values, expected):
    assert diagnosis.course(steps(*values), NATS).startswith(expected)
    mirrored = steps(*(-value for value in values))
    assert diagnosis.course(mirrored, HITS).startswith(expected)


def test_a_plateau_of_the_learning_rate_is_said():
    """With the cosine of 600 steps the rate is 25 % at step 400 and 7 % at step 500."""
    went = steps(5.0, 4.0, 3.5, 3.2, 3.0, 2.995)
    rates = {step: (1 + np.cos(np.pi * step / 600)) / 2 for step, _ in went}
    said = diagnosis.course(went, NATS, rates.__getitem__)
    assert said == (
        "on a plateau since step 500, where the learning rate had fallen to 7%: a longer run "
        "may gain"
    )
    assert diagnosis.course(went, NATS) == "on a plateau since step 500"
    assert diagnosis.course(went, NATS, lambda step: 0.25) == "on a plateau since step 500"
    assert "had fallen to 24%" in diagnosis.course(went, NATS, lambda step: 0.24)


def test_the_best_value_beside_the_strongest_baseline():
    others = {"popularity": 3.2, "popularity given context": 2.9}
    text = diagnosis.standing(steps(3.5, 3.0), NATS, others)
    assert text == "cross-entropy 3.0000, behind popularity given context (2.9000)"
    others = {"majority": 0.25}
    text = diagnosis.standing(steps(0.5, 0.75, 0.5), HITS, others)
    assert text == "accuracy 75.00%, ahead of majority (25.00%)"
    text = diagnosis.standing(steps(0.5, 0.25), HITS, {"majority": 0.5})
    assert text == "accuracy 50.00%, equal to majority (50.00%)"


def test_the_line_on_a_run_has_the_numbers_of_an_evaluation(trained):
    line = diagnosis.diagnose(trained)
    asked = evaluate.EvaluationOptions(split="validation", masking="one")
    results = evaluation_files.summary(evaluate.evaluate(trained, asked))["results"]
    means = {name: each["cross_entropy"]["mean"] for name, each in results.items()}
    own = means.pop("model")
    strongest = min(means.keys() - set(baselines.OPTIMA), key=lambda name: means[name])
    assert f"cross-entropy {own:.4f}, " in line
    word = "ahead of" if own < means[strongest] else "behind"
    assert f"{word} {strongest} ({means[strongest]:.4f})" in line


def test_baselines_answer_what_the_validations_asked(trained, tmp_path, schema, data_dir):
    """With `train.eval_examples` that is a part of the validation split.

    Three quarters of the way from step 2 to 6 the rate is (1 + cos(3 pi / 4)) / 2 of its peak.
    """
    shutil.copytree(trained, tmp_path / "run")
    nats = enumerate((5.0, 4.0, 3.5, 3.2, 3.0, 2.995), 1)
    rows = [{"step": n, "split": "validation", "cross_entropy": value} for n, value in nats]
    (tmp_path / "run" / "metrics.jsonl").write_text(lines(*rows))
    config = json.loads((trained / "config.json").read_text())
    config["train"]["eval_examples"] = 40
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    line = diagnosis.diagnose(tmp_path / "run")
    assert line.startswith(
        "on a plateau since step 5, where the learning rate had fallen to 15%"
    )
    name, stated = re.search(r"(?:behind|ahead of) ([^(]+) \(([\d.]+)\)", line).groups()
    whole = prepared.load(data_dir, "small", "validation", schema)
    split = columns.selected(whole, [len(whole) * number // 40 for number in range(40)])
    task = tasks.create(small(), config_lib.build_model(small(), schema), schema)
    load = baselines.loader(data_dir, "small", schema)
    queries = task.queries(split, "one")
    answers = task_baselines.predictions(task, load, schema, split, queries)
    answered = prediction.metrics(task, answers[name], queries)
    assert stated == f"{answered['cross_entropy']:.4f}"
    assert f"({stated})" not in diagnosis.diagnose(trained)


def test_data_are_whole_where_nobody_reads_what_is_printed(tmp_path):
    command = [
        *(sys.executable, "-m", "experiments.prepare", "--synthetic=stylist", "--sets=60"),
        *("--articles=80", "--name=mine", f"--data_dir={tmp_path}"),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(timeout=300) == 0
    assert (tmp_path / "mine" / "config.py").exists()


def test_the_output_bias_begins_at_log_popularity(data_dir, schema):
    import jax
    import numpy as np

    config = small("none", data__dir=data_dir, model__output_bias="popularity")
    bias = cbert.build(config).state.params["embedding"]["bias"]
    counts = np.array(schema.counts)
    expected = (counts + 0.5) / (counts.sum() + len(counts) / 2)
    np.testing.assert_allclose(jax.nn.softmax(bias), expected, rtol=1e-5)
    config.task.name = "classification"
    with pytest.raises(cbert.UserError, match="'popularity', which is for the task"):
        config_lib.check(config)


def test_the_commands_are_listed_with_a_line_each():
    listed = commands()
    assert {"train", "prepare", "tune"} <= set(listed)
    assert not {"command", "config_flag", "job_commands"} & set(listed)
    for name, line in listed.items():
        assert re.fullmatch(r"[A-Z].+\.", line), name
        assert (ROOT / "experiments" / f"{name}.py").exists()


def test_a_search_says_what_it_cannot_go_on_with(tmp_path):
    config = small("gs")
    config.train.update({"steps": 90, "eval_every": 9})
    first = halving.points(config, 0, len(halving.rung_sizes(9)), [0])[0]
    halving.check(config, 9, tmp_path)
    (tmp_path / first.name).mkdir()
    config_lib.save(first.apply(config), tmp_path / first.name)
    for trials in (6, 9, 17):
        halving.check(config, trials, tmp_path)
    for trials, steps in ((5, 30), (27, 3)):
        with pytest.raises(
            UserError, match=rf"begin with 10 steps.* with {steps}; give 6 to 17"
        ):
            halving.check(config, trials, tmp_path)
    config.model.layers += 1
    for trials in (9, 27):  # How many steps they begin with would be beside the point.
        with pytest.raises(UserError, match=r"differs: model.layers \(1 there, 2 here\); use"):
            halving.check(config, trials, tmp_path)


def test_trials_are_drawn_from_the_seed_and_halved():
    config = small("gs", model__heads=4)
    own = halving.draw(config, 0)
    assert own == {
        "optimizer.learning_rate": 1e-3,
        "model.dropout": 0.1,
        "model.dimension": 16,
        "model.feed_forward": 32,
        "optimizer.weight_decay": 0.01,
    }
    drawn = [halving.draw(config, trial) for trial in range(1, 40)]
    assert drawn == [halving.draw(config, trial) for trial in range(1, 40)]
    assert {one["model.dimension"] for one in drawn} == {8, 16, 32}
    assert all(2.5e-4 <= one["optimizer.learning_rate"] <= 4e-3 for one in drawn)
    assert len({one["optimizer.learning_rate"] for one in drawn}) > 30
    config.train.init_from = "runs/other"
    widths = {
        (one["model.dimension"], one["model.feed_forward"])
        for one in [halving.draw(config, trial) for trial in range(9)]
    }
    assert widths == {(16, 32)}
    assert halving.draw(config, 7) == {
        **drawn[6],
        "model.dimension": 16,
        "model.feed_forward": 32,
    }
    config.train.init_from = ""
    assert halving.rung_sizes(9) == [9, 3, 1]
    assert halving.rung_sizes(1) == [1]
    config.train.update({"steps": 90, "eval_every": 9})
    first, *_, last = [halving.points(config, rung, 3, [4])[0] for rung in range(3)]
    assert (first.overrides["train.steps"], last.overrides["train.steps"]) == (10, 90)
    assert first.overrides["train.eval_every"] == 1
    assert (first.name, last.name) == ("rung0-trial04", "rung2-trial04")
    assert halving.best({3: 2.0, 1: None, 2: 1.0, 0: 2.0}, NATS, 3) == [2, 0, 3]
    assert halving.best({3: 0.5, 1: 0.25}, HITS, 1) == [3]
    assert halving.best({0: 2.0, 1: np.nan, 2: 1.0, 3: 0.5}, NATS, 2) == [3, 2]


@pytest.mark.parametrize(
    ("command", "flag", "others"),
    [
        ("prepare", "input", ["--name=meals"]),
        ("prepare", "schema", ["--input=in.jsonl", "--name=meals"]),
        ("train", "workdir", ["--config=configs/base.py"]),
        ("sweep", "methods", ["--config=configs/base.py", "--workdir=runs"]),
    ],
)
def test_a_flag_that_is_given_empty_is_refused(command, flag, others):
    """As `--input=$FILE` where the variable is not set; synthetic data were made of it."""
    error = refused(command, f"--{flag}=", *others)
    assert error == f"error: --{flag} is empty; give a value, or leave it out\n"
