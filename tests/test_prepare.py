"""Preparing a file: room, splits, columns, and the lock."""

import contextlib
import gzip
import hashlib
import os
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from cbert import directories, files
from cbert.data import builder, prepare, prepared, readers, tables
from cbert.data.record_store import RecordStore, RecordView
from cbert.data.summary import format_summary
from cbert.data.synthetic import stylist
from cbert.errors import UserError
from tests.conftest import ROOT, lines, refused, run
from tests.test_records import ROWS, read, write


def rows(**last):
    """Thirty records, of which the last differs from the others and is not for training."""
    examples = [
        {"items": ["a", "b"], "split": "train", "context": {"tags": ["x"], "level": 0.1}}
        for _ in range(30)
    ]
    for number in (0, 1):
        examples[number]["context"] = {"tags": ["y"], "level": None}
    examples[2]["split"] = "validation"
    examples[-1] = {**examples[-1], "split": "test", **last}
    return examples


def make_prepared(folder: pathlib.Path, examples, **options):
    records = read(write(folder / "in.jsonl", examples))
    _, summary = prepare.prepare(records, folder, "own", prepare.PrepareOptions(**options))
    schema = prepared.load_schema(str(folder), "own")
    return schema, summary, prepared.load(str(folder), "own", "test", schema)


def test_the_longest_example_and_list_may_be_in_any_split(tmp_path):
    tags = ["x", "y", "z"]
    last = {"items": list("abcde"), "context": {"tags": tags}}
    schema, summary, test = make_prepared(tmp_path, rows(**last))
    assert "beyond_training" not in summary  # A set has no positions.
    assert schema.max_items == 5
    assert test.lengths.tolist() == [5]
    assert schema.feature("tags").max_values == 3
    codes = schema.feature("tags").codes
    assert test.context["tags"].tolist() == [[codes["x"], codes["y"], 2]]


def test_equal_numbers_have_no_deviation_to_divide_by(tmp_path):
    """The computed deviation of equal numbers may be 1e-17."""
    assert np.std([0.1] * 27) != 0
    schema, _, test = make_prepared(tmp_path, rows(context={"level": 0.2}))
    assert schema.feature("level").scale == 1.0
    np.testing.assert_allclose(test.context["level"], [[1.0, 0.1]], rtol=1e-6)


def test_a_group_in_several_splits_is_counted(tmp_path):
    examples = rows()
    for number, group in ((0, "p"), (2, "p"), (29, "p"), (3, "q"), (4, "q")):
        examples[number]["group"] = group
    _, summary, _ = make_prepared(tmp_path, examples)
    assert summary["groups_across_splits"] == 1
    text = format_summary(summary, "leave_out")
    assert "groups      1 lie in several splits" in text


def test_positions_that_training_lacks_are_counted(tmp_path):
    _, summary, _ = make_prepared(tmp_path, rows(items=list("abc")), kind="sequence")
    assert summary["beyond_training"] == {"longest": 2, "examples": 1}
    assert "positions   1 examples of other splits" in format_summary(summary, "leave_out")


def test_values_that_training_has_not_are_counted(tmp_path):
    _, summary, _ = make_prepared(tmp_path, rows(context={"tags": ["y", "new", "x"]}))
    # Outside training there are x of the validation split and the last record's three.
    assert summary["features"]["tags"]["unseen"] == 1 / 4
    assert "unseen      " not in format_summary(summary, "leave_out")
    (tmp_path / "more").mkdir()
    more = make_prepared(tmp_path / "more", rows(context={"tags": ["new", "newer"]}))[1]
    assert more["features"]["tags"]["unseen"] == 2 / 3
    assert "unseen      tags: most values outside" in format_summary(more, "leave_out")


def test_split_weights_that_change_nothing_are_pointed_out(tmp_path, capsys):
    free = [{"items": ["a", "b"]} for _ in range(30)]
    placed = [{"items": ["a", "b"], "split": "train"}, *free]
    make_prepared(tmp_path, placed, split_weights=(50, 25, 25))
    said = "split_weights changes nothing for records with a split of their own (1); leave"
    assert said in capsys.readouterr().err
    make_prepared(tmp_path, free, split_weights=(50, 25, 25), overwrite=True)
    make_prepared(tmp_path, placed, overwrite=True)
    assert "split_weights" not in capsys.readouterr().err


def test_features_that_look_like_ids_are_pointed_out(tmp_path, capsys):
    count = 150
    examples = [
        {
            "items": ["a", "b"],
            "split": "train" if n < count - 2 else "validation",
            "context": {
                "ticket": 1000 + 7 * n,
                "reference": f"T-{max(n, 9)}",
                "price": n + 0.5,
                "age": n // 2,
                "town": f"town {n // 2}",
                "tags": [f"tag {max(n, 9)}"],
            },
        }
        for n in range(count)
    ]
    prepare.prepare(
        read(write(tmp_path / "in.jsonl", examples)), tmp_path, "own", prepare.PrepareOptions()
    )
    warnings = capsys.readouterr().err.splitlines()
    assert warnings == [
        f"warning: feature '{name}' has another value in nearly every example, as an id has; "
        f"if it is one, rename it id or group, give columns=id:{name}, or drop={name}; of a "
        "time, take what repeats, such as month and weekday, into columns of their own"
        for name in ("ticket", "reference")
    ]
    few = read(write(tmp_path / "in.jsonl", examples[60:]))
    prepare.prepare(few, tmp_path, "few", prepare.PrepareOptions(value_min_count=1))
    assert not capsys.readouterr().err


def test_what_is_dropped_leaves_a_given_schema_too(tmp_path):
    records = read(write(tmp_path / "in.jsonl", ROWS))
    prepare.prepare(records, tmp_path, "whole", prepare.PrepareOptions())
    whole = prepared.load_schema(str(tmp_path), "whole")
    prepare.prepare(records, tmp_path, "part", prepare.PrepareOptions(drop=("age",)), whole)
    part = prepared.load_schema(str(tmp_path), "part")
    assert [f for f in whole.features if f.name != "age"] == list(part.features)


def csv(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "in.csv"
    path.write_text(text)
    return path


def test_columns_whose_kinds_are_given(tmp_path):
    path = csv(tmp_path, "items,zip,age,tags\na|b,01234,30,u;v\na,99999,,u\n")
    one, two = readers.read(path, columns=tables.Columns(categorical=("zip",)))
    assert one.context == {"zip": "01234", "age": 30.0, "tags": "u;v"}
    assert two.context["zip"] == "99999"
    for columns, message in (
        (tables.Columns(categorical=("zipp",)), "categorical names 'zipp'"),
        (tables.Columns(multi_valued=("items",)), "multi_valued names 'items'"),
        (tables.Columns(numerical=("tags",)), "in.csv:2: 'tags' is 'u;v', not a number"),
        (tables.Columns(separator=""), "separator is empty"),
    ):
        with pytest.raises(UserError, match=message):
            read(path, columns=columns)
    with pytest.raises(UserError, match="categorical is for CSV"):
        read(write(tmp_path / "in.jsonl", ROWS), columns=tables.Columns(categorical=("day",)))
    with pytest.raises(UserError, match="two columns are called 'tag'"):
        read(csv(tmp_path, "items,tag,tag\na,1,2\n"))


def test_compressed_csv_and_parquet_without_a_context(tmp_path):
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(b"items,day\na|b,mon\n"))
    assert read(path)[0].context == {"day": "mon"}
    table = [{"items": ["a"], "context": {"day": "mon"}}, {"items": ["b"], "context": None}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "in.parquet")
    assert [record.context for record in read(tmp_path / "in.parquet")] == [{"day": "mon"}, {}]


def test_flags_that_would_change_nothing(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*rows()))

    def refusal(*flags):
        return refused("prepare", "--name=own", f"--data_dir={tmp_path}/data", *flags)

    assert "--seed cannot be given together with --input" in refusal(
        f"--input={path}", "--seed=3"
    )
    assert "--columns cannot be given together with --synthetic" in refusal(
        "--synthetic=stylist", "--columns=items:x"
    )
    assert "longer=subsample needs a limit; give --max_items=N" in refusal(
        f"--input={path}", "--longer=subsample"
    )
    for target in (f"{tmp_path}/in.csv", f"{tmp_path}/absent/in.jsonl"):
        assert f"--records is {target}" in refusal("--synthetic=stylist", f"--records={target}")
    assert not (tmp_path / "data").exists()


def test_a_home_directory_is_found(tmp_path):
    (tmp_path / "in.jsonl").write_text(lines(*rows(context={"tags": ["x"]})))
    flags = ("--name=own", f"--data_dir={tmp_path}")
    run("prepare", "--input=~/in.jsonl", *flags, HOME=str(tmp_path))
    schema = "--schema=~/own/1.0.0/schema.json"
    done = run(
        "prepare", "--input=~/in.jsonl", schema, *flags, "--overwrite", HOME=str(tmp_path)
    )
    assert "train 28  validation 1  test 1" in done.stdout


def test_one_process_writes_a_data_set_and_clears_what_a_killed_one_left(tmp_path, data_dir):
    records = read(write(tmp_path / "in.jsonl", ROWS))
    left = tmp_path / "own" / ".writing-killed"
    left.mkdir(parents=True)
    (left / "half.array_record").write_text("half")
    prepare.prepare(records, tmp_path, "own", prepare.PrepareOptions())
    assert {path.name for path in (tmp_path / "own").iterdir()} == {"1.0.0", "lock"}
    here = f"is in use by process {os.getpid()} on .*; wait for it or use another name"
    schema = prepared.load_schema(str(tmp_path), "own")
    with contextlib.closing(RecordStore(tmp_path)) as store:
        store.append(records[0], "train")
        views = {"train": RecordView(store, np.array([0]))}
        with directories.Lock(tmp_path / "own", "--name"), pytest.raises(UserError, match=here):
            builder.write(tmp_path, "own", views, schema, overwrite=True)
        with pytest.raises(UserError, match="exists; give another name"):
            builder.write(tmp_path, "own", views, schema)


def test_a_link_stays_and_a_device_is_no_file(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    with pytest.raises(UserError, match="/dev/null is not a file; give another path"):
        files.write_text(pathlib.Path("/dev/null"), "text")
    assert pathlib.Path("/dev/null").is_char_device()


def test_processes_draw_what_one_draws(monkeypatch):
    sizes = [300, 20, 20]
    alone = list(stylist.outfits(80, sizes, seed=3))
    monkeypatch.setattr(stylist, "MANY", 100)
    assert list(stylist.outfits(80, sizes, seed=3)) == alone


def test_equal_records_give_equal_files(tmp_path):
    """Each run is a process, because the order of a protocol buffer's map is random in each."""
    path = write(tmp_path / "in.jsonl", ROWS)
    for name in ("one", "other"):
        run("prepare", f"--input={path}", "--name=own", f"--data_dir={tmp_path}/{name}")
    digests = [
        {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in (tmp_path / name / "own" / builder.VERSION).iterdir()
        }
        for name in ("one", "other")
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 6  # They are three splits, the schema, and two files of TFDS.


def test_the_order_is_that_of_tfds(tmp_path):
    """TFDS sorts by the MD5 of split and id, and writes a backslash as a slash."""
    ids = [f"a\\b{number}" for number in range(40)]
    rows = [{**row, "id": name} for row, name in zip(ROWS, ids, strict=False)]
    records = read(write(tmp_path / "in.jsonl", rows))
    prepare.prepare(records, tmp_path, "own", prepare.PrepareOptions())
    schema = prepared.load_schema(str(tmp_path), "own")
    loaded = prepared.load(str(tmp_path), "own", "train", schema).ids
    assert len(loaded) > 20
    assert loaded == sorted(
        loaded,
        key=lambda name: hashlib.md5(f"train{name}".replace("\\", "/").encode()).digest(),
    )


def peak_memory(folder: pathlib.Path, count: int) -> int:
    """The most memory, in bytes, that preparing so many long records takes at once."""
    random = np.random.default_rng(0)
    path = folder / f"{count}.jsonl"
    with path.open("w") as file:
        for number in range(count):
            items = [f"item {item}" for item in random.permutation(1000)[:300]]
            file.write(lines({"items": items, "context": {"age": number % 80}}))
    code = (
        "import resource, sys; from cbert.data import prepare, readers; "
        "records, options = readers.read(sys.argv[1]), prepare.PrepareOptions(); "
        "prepare.prepare(records, sys.argv[2], 'own', options); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, str(path), str(folder / str(count))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return 1024 * int(done.stdout)


@pytest.mark.soak
def test_memory_does_not_grow_with_the_records(tmp_path):
    """As Python objects, the 8000 further records would take 160 MB."""
    assert peak_memory(tmp_path, 9_000) - peak_memory(tmp_path, 1_000) < 30e6
