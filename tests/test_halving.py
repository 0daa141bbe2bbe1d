"""What a search says of its trials, while it goes on and when it has ended."""

from cbert.sweep import halving
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
    assert said.startswith(
        "The rungs take 2 steps. Their columns have the cross-entropy of the"
    )
    head, _, trial = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert trial[-1] == "chosen"
    printed = [line.split() for line in done.stdout.splitlines()]
    assert " ".join(head).split() in printed
    assert trial in printed
    assert f"{tmp_path}/tune/trials.md" in done.stdout
