"""What a search tries and chooses, and what it says of that."""

import statistics

import pytest

from cbert.data.records import VALIDATION
from cbert.sweep import halving
from cbert.training import evaluations
from tests.conftest import run, small
from tests.test_first_hour import NATS


def outcomes(rungs, trials=4):
    """The last columns of the table: the results of each trial, and what became of it."""
    head, *rows = halving.table(small("gs"), trials, rungs, NATS)
    assert head[:6] == [
        *("trial", "learning_rate", "dropout", "dimension", "feed_forward", "weight_decay")
    ]
    assert [row[0] for row in rows] == [str(trial) for trial in range(trials)]
    assert [float(cell) for cell in rows[0][1:6]] == [1e-3, 0.1, 16, 32, 0.01]
    return [row[6:] for row in rows]


def test_which_trials_were_stopped_and_which_was_chosen():
    """Of four trials one takes all steps."""
    assert outcomes([]) == [[]] * 4
    first = {0: 2.0, 1: None, 2: 1.5, 3: float("nan")}
    assert outcomes([first]) == [
        ["2.0000", "stopped after rung 0"],
        ["failed", "failed"],
        ["1.5000", "goes on"],
        ["nan", "failed"],
    ]
    assert outcomes([first, {2: 1.25}]) == [
        ["2.0000", "", "stopped after rung 0"],
        ["failed", "", "failed"],
        ["1.5000", "1.2500", "chosen"],
        ["nan", "", "failed"],
    ]
    # More trials of a search that has ended go on with it: another one may be chosen.
    more = {**first, 4: 1.0}
    assert [row[-1] for row in outcomes([more, {4: 0.5}], 5)][2::2] == [
        "stopped after rung 0",
        "chosen",
    ]


def test_each_rung_decides_the_next_one():
    """The first of the first rung is neither the first of the second nor the chosen one."""
    rungs = [{n: float(n) for n in range(9)}, {0: 2.0, 1: 1.5, 2: 1.0}, {2: 0.5}]
    sizes = halving.rung_sizes(9)
    wanted = [list(range(9)), [0, 1, 2], [2], [2]]
    assert [halving.following(sizes, rungs[:n], NATS) for n in range(4)] == wanted
    assert halving.following(sizes, [{0: None}], NATS) == []
    ended = ["stopped after rung 1"] * 2 + ["chosen"] + ["stopped after rung 0"] * 6
    assert [row[-1] for row in outcomes(rungs, 9)] == ended


def test_settings_are_drawn_from_their_whole_ranges():
    config = small("gs", model__heads=4, model__dimension=12)
    drawn = [halving.draw(config, trial) for trial in range(1, 200)]
    for name, least, largest in ((halving.RATE, 2.5e-4, 4e-3), (halving.DECAY, 1e-3, 0.3)):
        values = [one[name] for one in drawn]
        assert least <= min(values) < 1.2 * least
        assert 0.8 * largest < max(values) <= largest
        middle = (least * largest) ** 0.5  # The scale is logarithmic.
        assert statistics.median(values) == pytest.approx(middle, rel=0.25)
    assert {one[halving.DROPOUT] for one in drawn} == {0.0, 0.05, 0.1, 0.2, 0.3}
    # A half of 12 would not divide by the heads.
    widths = {tuple(one[name] for name in halving.WIDTHS) for one in drawn}
    assert widths == {(8, 16), (12, 32), (24, 64)}
    config.train.item_embeddings = "vectors.parquet"
    drawn = [halving.draw(config, trial) for trial in range(9)]
    assert {tuple(one[name] for name in halving.WIDTHS) for one in drawn} == {(12, 32)}


def test_the_schedule_of_a_rung_by_hand():
    """Only the last of three rungs takes the config's own steps; all have its seed."""
    own = {"steps": 90, "eval_every": 45, "checkpoint_every": 18}
    fields = [*(f"train.{name}" for name in own), "optimizer.warmup_steps", "seed"]
    for warmup, scaled in ((27, 3), (2, 1), (0, 0)):
        config = small("gs", seed=7, optimizer__warmup_steps=warmup)
        config.train.update(own)
        rungs = [halving.points(config, rung, 3, [0, 4]) for rung in (0, 2)]
        made = [[[one.overrides[f] for f in fields] for one in points] for points in rungs]
        assert made == [[[10, 5, 2, scaled, 7]] * 2, [[90, 45, 18, warmup, 7]] * 2]


def test_a_search_writes_the_table_that_it_prints(data_dir, tmp_path):
    done = run(
        "tune",
        *("--config=configs/base.py:none", f"--config.data.dir={data_dir}", "--trials=1"),
        *("--config.data.name=small", "--config.train.steps=2", "--config.train.eval_every=1"),
        *("--config.model.dimension=8", "--config.model.heads=2", "--config.model.layers=1"),
        *("--config.train.batch_size=32", "--workers=1", f"--workdir={tmp_path}/tune"),
    )
    page = (tmp_path / "tune" / "trials.md").read_text()
    title, _, said, _, *table = page.splitlines()
    assert title == "# Trials of none on small"
    assert said == (
        "The rungs take 2 steps. Their columns have the cross-entropy of the validation split."
    )
    (evaluated,) = (tmp_path / "tune" / "rung0-trial00" / "eval").glob("*.json")
    assert evaluated == evaluations.path(tmp_path / "tune" / "rung0-trial00", VALIDATION)
    head, _, trial = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert trial[-1] == "chosen"
    printed = [line.split() for line in done.stdout.splitlines()]
    assert " ".join(head).split() in printed
    assert trial in printed
    assert f"{tmp_path}/tune/trials.md" in done.stdout
