"""Lists of the data's items as a feature: codes, checks, slices, files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data import prepare, prepared, readers
from cbert.data.context_dropout import drop_features
from cbert.errors import UserError
from cbert.schema import History, Schema
from tests.conftest import lines, refused, run
from tests.test_features import ROWS

ITEMS = {"a": 0, "b": 1, "c": 2}
VIEWED = History("viewed", 8, max_items=3)


def test_a_history_keeps_order_and_the_latest_items():
    column = [["b", "a"], None, [], ["odd", "a", "a"], ["a", "b", "c", "a"]]
    assert VIEWED.encode(column, ITEMS).tolist() == [
        [1, 1, 0, -1],
        [0, -1, -1, -1],
        [1, -1, -1, -1],
        [1, -2, 0, 0],
        [1, 1, 2, 0],
    ]
    assert VIEWED.missing().tolist() == [[0, -1, -1, -1]]
    assert VIEWED.dropped().tolist() == [[0, -1, -1, -1]]
    with pytest.raises(UserError, match=r"'viewed' is history, not \[1\]"):
        VIEWED.encode([[1]], ITEMS)


def test_a_users_history_is_checked():
    assert VIEWED.validate(["a", "odd", "odd"], ITEMS) == ["odd"]
    # A longer one is cut to the latest, as in training.
    assert VIEWED.validate(["odd", "a", "b", "a", "b"], ITEMS) == ["odd"]
    latest = VIEWED.encode([["b", "b", "a", "b"], ["b", "a", "b"]], ITEMS)
    assert latest[0].tolist() == latest[1].tolist()


def test_a_history_is_sliced_by_length_and_counted_by_item():
    slices = VIEWED.slices([[], ["a"], ["a", "b"], ["a", "b", "c"], None])
    assert {label: inside.tolist() for label, inside in slices.items()} == {
        "0 items": [True, False, False, False, False],
        "1 items": [False, True, False, False, False],
        "2 items": [False, False, True, False, False],
        "3 items": [False, False, False, True, False],
    }
    coded = VIEWED.encode([["c", "a", "a"], ["odd"], None], ITEMS)
    levels, count = VIEWED.levels(coded, 2)
    assert count == 2
    assert [sorted(row[row > 0].tolist()) for row in levels] == [[1], [], []]


def test_a_dropped_history_is_missing():
    schema = Schema("set", 2, ("a", "b", "c"), (1, 1, 1), (VIEWED,))
    rows = 400
    context = {"viewed": jnp.asarray(VIEWED.encode([["a", "b"]] * rows, ITEMS))}
    shown = drop_features(jax.random.key(0), context, np.arange(rows), rows, 0.25, schema)
    dropped = np.asarray(shown["viewed"])[:, 0] == 0
    assert 0.18 < dropped.mean() < 0.32
    assert (np.asarray(shown["viewed"])[dropped] == VIEWED.missing()).all()
    assert (np.asarray(shown["viewed"])[~dropped] == [1, 0, 1, -1]).all()


def make_prepared(folder, path, columns=None):
    rows = list(readers.read(path, columns=columns))
    options = prepare.PrepareOptions(kinds={"viewed": "history"})
    prepare.prepare(rows, folder / "data", "own", options)
    schema = prepared.load_schema(str(folder / "data"), "own")
    return schema, prepared.load(str(folder / "data"), "own", "train", schema)


def test_a_history_from_json_lines_and_csv(tmp_path):
    rows = [
        {"id": f"r{n}", "items": ["a", "b"], "group": f"g{n}", "context": {"viewed": viewed}}
        for n, viewed in enumerate([["b", "a"], ["a"], ["a", "odd", "b"], None] * 15)
    ]
    (tmp_path / "in.jsonl").write_text(lines(*rows))
    table = ["id,items,group,viewed"]
    table += [
        f"{r['id']},a|b,{r['group']},{'|'.join(r['context']['viewed'] or [])}" for r in rows
    ]
    (tmp_path / "in.csv").write_text("\n".join(table) + "\n")
    schema, split = make_prepared(tmp_path / "one", tmp_path / "in.jsonl")
    assert schema.features == (History("viewed", 64, max_items=3),)
    coded = dict(zip(split.ids, split.context["viewed"].tolist(), strict=True))
    wanted = ([1, 1, 0, -1], [1, 0, -1, -1], [1, 0, -2, 1], [0, -1, -1, -1])
    assert coded == {name: wanted[int(name[1:]) % 4] for name in coded}
    columns = readers.Columns(history=("viewed",))
    other, same = make_prepared(tmp_path / "other", tmp_path / "in.csv", columns)
    assert other == schema
    assert (same.context["viewed"] == split.context["viewed"]).all()


def test_the_history_flag(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [
        {**row, "context": {"viewed": row["context"]["viewed"], "age": 3 + n}}
        for n, row in enumerate(ROWS)
    ]
    path.write_text(lines(*rows))
    flags = (f"--input={path}", f"--data_dir={tmp_path}/data", "--name=own")
    printed = run("prepare", *flags, "--history=viewed").stdout
    assert ["viewed", "history", "4", "64", "0.0%", "12.5%"] in [
        row.split() for row in printed.splitlines()
    ]
    path.write_text(lines(*({**row, "items": ["c", "d"]} for row in rows)))
    printed = run("prepare", *flags[:2], "--name=never", "--history=viewed").stdout
    assert "unseen      viewed: most values outside training" in printed
    path.write_text(lines(*rows))
    assert "'seen' is named as a history; the features are: viewed, age" in refused(
        "prepare", *flags[:2], "--name=other", "--history=seen"
    )
    assert (
        "context 'age' is 3, numerical; it cannot be of the kind history; give a list of "
        "items, or another kind"
    ) in refused("prepare", *flags[:2], "--name=other", "--history=age")
