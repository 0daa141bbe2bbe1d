"""Batches are functions of (seed, step); a split is the same from its cache."""

import dataclasses
import itertools
import json
import os
import shutil

import numpy as np
import pytest

from cbert.data import batching, builder, column_cache, prepared
from cbert.data.batching import Batches, bucket_bounds
from cbert.data.columns import Split, evenly_spaced, joined, selected
from cbert.errors import UserError

LENGTHS = np.random.default_rng(0).choice([3, 4, 5, 6, 7, 9, 12, 15, 20, 31], size=1003)


def test_padded_lengths_are_the_same_for_every_seed():
    one, other = (Batches(LENGTHS, 32, seed) for seed in (0, 1))
    steps = range(2 * one.steps_per_epoch)
    assert [one(s)[1] for s in steps] == [other(s)[1] for s in steps]
    assert any((one(s)[0] != other(s)[0]).any() for s in steps)


def test_every_set_fits_and_occurs_once_an_epoch():
    batches = Batches(LENGTHS, 32, 0)
    assert batches.steps_per_epoch == 31
    for epoch in range(2):
        drawn = [batches(epoch * 31 + step) for step in range(31)]
        rows = np.concatenate([rows for rows, _ in drawn])
        assert len(rows) == len(set(rows)) == 31 * 32
        assert all(LENGTHS[rows].max() <= length for rows, length in drawn)
    assert len({length for _, length in drawn}) <= 8


def test_a_step_is_the_same_however_it_is_reached():
    walked = Batches(LENGTHS, 32, 5)
    all_rows = [walked(step)[0] for step in range(70)]
    assert (Batches(LENGTHS, 32, 5)(66)[0] == all_rows[66]).all()


def test_bounds_waste_least():
    lengths = np.array([1] * 5 + [2] * 1 + [3] * 7 + [8] * 2 + [9] * 3)
    values = np.unique(lengths)

    def waste(bounds):
        bounds = np.array(bounds)
        return (bounds[np.searchsorted(bounds, lengths)] - lengths).sum()

    for count in (1, 2, 3):
        options = [(*some, 9) for some in itertools.combinations(values[:-1], count - 1)]
        assert waste(bucket_bounds(lengths, count)) == min(map(waste, options))
    assert bucket_bounds(lengths, 8).tolist() == [1, 2, 3, 8, 9]


def test_buckets_fill_whole_batches():
    lengths = np.array([1] * 8 + [3] * 7 + [9] * 2)
    # The three kinds fill one batch of 8 rows each, and all together one of 17.
    assert bucket_bounds(lengths, 8, batch_size=8).tolist() == [1, 3, 9]
    assert bucket_bounds(lengths, 8, batch_size=17).tolist() == [9]
    # Of 16 rows, one holds those of 3 and 9, and 16 * (1 + 9) are less than 32 * 9.
    assert bucket_bounds(lengths, 8, batch_size=16).tolist() == [1, 9]


def test_a_batch_larger_than_the_split_is_refused():
    with pytest.raises(
        UserError, match=r"train\.batch_size is 2000, the training split has 1003"
    ):
        Batches(LENGTHS, 2000, 0)


def test_steps_of_one_length_follow_each_other():
    batches = Batches(LENGTHS, 8, seed=0)
    padded = [batches(step)[1] for step in range(batches.steps_per_epoch)]
    runs = [len(list(group)) for _, group in itertools.groupby(padded)]
    # 125 batches of 8 lengths make whole blocks, and at most one shorter block a length.
    assert len(runs) <= 125 // batching.BLOCK + 8
    for step in range(100):
        rows, length = batches.several(step, 4)
        assert len(rows) == (4 if len(set(padded[step : step + 4])) == 1 else 1)
        assert length == padded[step]
        np.testing.assert_array_equal(rows[-1], batches(step + len(rows) - 1)[0])


def test_every_epoch_is_shuffled_anew():
    batches, steps = Batches(LENGTHS, 8, seed=0), 125
    drawn = [[batches(first + step) for step in range(steps)] for first in (0, steps)]
    one, other = (np.stack([rows for rows, _ in epoch]) for epoch in drawn)
    padded = [[length for _, length in epoch] for epoch in drawn]
    assert padded[0] != padded[1]
    assert all(lengths != sorted(lengths) for lengths in padded)
    # Three of 1003 are left out, and others take their turn.
    assert set(one.ravel()) != set(other.ravel()) != set(range(1000))
    # Few that share a batch share one again.
    where = np.full(len(LENGTHS), -1)
    where[other] = np.arange(steps)[:, None]
    assert (where[one[:, 1:]] == where[one[:, :-1]]).mean() < 0.2
    # Nor do steps of one padded length follow each other from short to long.
    shuffled = Batches(LENGTHS, 8, seed=0, buckets=1)
    longest = [LENGTHS[shuffled(step)[0]].max() for step in range(batching.BLOCK)]
    assert longest != sorted(longest)


def test_steps_of_two_lengths_are_not_taken_as_one():
    """Ten steps an epoch make blocks of one or two, so that a length soon comes again."""
    batches, found = Batches(LENGTHS, 100, seed=0), 0
    for step in range(100):
        lengths = [batches(number)[1] for number in range(step, step + 3)]
        found += lengths[0] == lengths[2] != lengths[1]
        assert len(batches.several(step, 3)[0]) == (3 if len(set(lengths)) == 1 else 1)
    assert found


def same(one, other):
    for name in ("ids", "groups", "contexts"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.items, other.items)
    for part in ("context", "reference"):
        here, there = getattr(one, part), getattr(other, part)
        assert here.keys() == there.keys()
        for name in here:
            np.testing.assert_array_equal(here[name], there[name])


def test_damaged_data_are_refused_or_the_same(data_dir, schema, tmp_path):
    """Each file of prepared data in turn has a bit flipped, is cut short, or is deleted."""
    whole = builder.directory(data_dir, "small")
    expected = prepared.load(data_dir, "small", "test", schema)
    files = [path.relative_to(whole) for path in whole.glob("*.*") if path.is_file()]
    assert len(files) > 4
    refusals = []
    for number, (name, damage) in enumerate(
        itertools.product(files, ("flip", "cut", "delete"))
    ):
        folder = tmp_path / str(number) / "small" / builder.VERSION
        shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("columns"))
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 4
        kept = content if damage == "flip" else content[: number + 9]
        (folder / name).write_bytes(kept)
        if damage == "delete":
            (folder / name).unlink()
        try:
            loaded = prepared.load_schema(tmp_path / str(number), "small")
            split = prepared.load(tmp_path / str(number), "small", "test", loaded)
        except UserError as error:
            refusals.append(str(folder) in str(error))
        else:
            if loaded == schema:
                same(split, expected)
    assert len(refusals) > len(files)
    assert all(refusals)


@pytest.mark.parametrize("where", ["a class", "JSON in a string", "the other file"])
def test_prepared_data_of_a_stranger_run_no_code(data_dir, tmp_path, monkeypatch, where):
    """TFDS imports the module of a class that it does not know, and modules may lie there."""
    folder = tmp_path / "small" / builder.VERSION
    shutil.copytree(builder.directory(data_dir, "small"), folder)
    (tmp_path / "small" / "stranger.py").write_text("open('it_ran', 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    features = json.loads((folder / "features.json").read_text())
    if where == "JSON in a string":
        inner = {"type": "small.stranger.Text", "content": {}}
        del features["featuresDict"]
        features["jsonFeature"] = {"json": json.dumps({"id": inner})}
    else:
        features["featuresDict"]["features"]["id"]["pythonClassName"] = "small.stranger.Text"
    if where == "the other file":
        info = json.loads((folder / "dataset_info.json").read_text())
        (folder / "dataset_info.json").write_text(json.dumps({**info, "features": features}))
    else:
        (folder / "features.json").write_text(json.dumps(features))
    with pytest.raises(UserError) as raised:
        prepared.split_names(tmp_path, "small")
    assert not (tmp_path / "it_ran").exists()
    assert "small.stranger.Text" in str(raised.value)
    assert "which is no class of TFDS" in str(raised.value)


def test_a_split_is_the_same_from_its_cache(data_dir, schema, tmp_path, capsys):
    folder = tmp_path / "small" / builder.VERSION
    shutil.copytree(builder.directory(data_dir, "small"), folder)
    shutil.rmtree(folder / "columns", ignore_errors=True)
    fresh = prepared.load(tmp_path, "small", "test", schema)
    with pytest.MonkeyPatch.context() as patch:  # The same where there can be no cache.
        patch.setattr(column_cache, "write", lambda *_: False)
        patch.setattr(column_cache, "read", lambda _: None)
        same(prepared.load(tmp_path, "small", "test", schema), fresh)
    (cache,) = (folder / "columns").iterdir()
    assert fresh.contexts[0].startswith("{")
    same(column_cache.read(cache), fresh)

    # One flipped bit in the middle is noticed, and the cache is written again.
    content = bytearray(cache.read_bytes())
    content[len(content) // 2] ^= 1
    cache.unlink()  # The fresh split is mapped from that file.
    cache.write_bytes(content)
    same(prepared.load(tmp_path, "small", "test", schema), fresh)
    assert "damaged" in capsys.readouterr().err
    same(column_cache.read(cache), fresh)

    # Another schema has another cache.
    fewer = dataclasses.replace(schema, features=schema.features[:1])
    assert (
        prepared.load(tmp_path, "small", "test", fewer).context.keys() != fresh.context.keys()
    )
    assert len(list((folder / "columns").iterdir())) == 2

    # Other records take the place of both, and of no other split's.
    prepared.load(tmp_path, "small", "validation", schema)
    (records,) = folder.glob("*-test.array_record*")
    os.utime(records, (1, 1))
    same(prepared.load(tmp_path, "small", "test", schema), fresh)
    kept = sorted(path.name.partition("-")[0] for path in (folder / "columns").iterdir())
    assert kept == ["test", "validation"]


def test_a_reference_is_kept_where_every_block_has_one(data_dir, schema, tmp_path):
    block = selected(prepared.load(data_dir, "small", "test", schema), [0, 1, 2])
    without = dataclasses.replace(block, reference=None)
    path = tmp_path / "columns" / "test-records-schema.arrow"
    for blocks, kept in (
        ([block, block], True),
        ([without, block], False),
        ([block, without], False),
    ):
        assert column_cache.write(path, blocks)
        for whole in (column_cache.read(path), joined(blocks)):
            assert len(whole) == 6
            assert (whole.reference is not None) == kept


def test_some_examples_at_equal_distances(train_split):
    few = evenly_spaced(train_split, 7)
    rows = [number * len(train_split) // 7 for number in range(7)]
    assert [*few.ids] == [train_split.ids[row] for row in rows]
    np.testing.assert_array_equal(few.items, train_split.items[rows])
    for name, column in train_split.context.items():
        np.testing.assert_array_equal(few.context[name], column[rows])
    assert len(few.contexts) == len(few.groups) == len(few) == 7
    assert evenly_spaced(train_split, 0) is train_split
    assert evenly_spaced(train_split, len(train_split)) is train_split


def test_some_windows_are_those_of_whole_passages():
    """The tenth window comes after the second one, and there is at least one passage."""
    ids = ["b#10", "a#0", "b#2", "a#1"]
    items, texts = np.zeros((4, 1), np.int32), ['{"window": 1}'] * 4
    split = Split(ids, ids, ["{}"] * 4, items, {}, None, texts=texts)
    rows, begins = split.passages
    assert rows.tolist() == [2, 0, 1, 3]
    assert begins.tolist() == [0, 2]
    for count in (1, 2, 3):
        assert evenly_spaced(split, count).ids == ["b#2", "b#10"]
