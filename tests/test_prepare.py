"""From a file to prepared data: room, splits, columns, and who may write."""

import gzip
import os
import pathlib

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from cbert import files
from cbert.data import builder, prepare, readers, source, stylist
from cbert.errors import UserError
from tests.conftest import lines, refused, run
from tests.test_records import ROWS, read, write


def rows(**last):
    """Thirty records, the last of them another one, and not for training."""
    found = [
        {"items": ["a", "b"], "split": "train", "context": {"tags": ["x"], "level": 0.1}}
        for _ in range(30)
    ]
    for number in (0, 1):
        found[number]["context"] = {"tags": ["y"], "level": None}
    found[2]["split"] = "validation"
    found[-1] = {**found[-1], "split": "test", **last}
    return found


def prepared(folder: pathlib.Path, found, **options):
    records = read(write(folder / "in.jsonl", found))
    _, summary = prepare.prepare(records, folder, "own", prepare.Options(**options))
    schema = source.load_schema(str(folder), "own")
    return schema, summary, source.load(str(folder), "own", "test", schema)


def test_the_longest_example_and_list_may_be_in_any_split(tmp_path):
    tags = ["x", "y", "z"]
    schema, _, test = prepared(tmp_path, rows(items=list("abcde"), context={"tags": tags}))
    assert schema.max_items == 5
    assert test.lengths.tolist() == [5]
    assert schema.feature("tags").max_values == 3
    codes = schema.feature("tags").codes
    assert test.context["tags"].tolist() == [[codes["x"], codes["y"], 2]]


def test_equal_numbers_have_no_deviation_to_divide_by(tmp_path):
    """The computed deviation of equal numbers may be 1e-17."""
    assert np.std([0.1] * 27) != 0
    schema, _, test = prepared(tmp_path, rows(context={"level": 0.2}))
    assert schema.feature("level").scale == 1.0
    np.testing.assert_allclose(test.context["level"], [[1.0, 0.1]], rtol=1e-6)


def test_a_group_in_several_splits_is_counted(tmp_path):
    found = rows()
    for number, group in ((0, "p"), (2, "p"), (29, "p"), (3, "q"), (4, "q")):
        found[number]["group"] = group
    _, summary, _ = prepared(tmp_path, found)
    assert summary["groups_across_splits"] == 1
    text = prepare.format_summary(summary, prepare.Options())
    assert "groups      1 lie in several splits" in text


def test_what_is_dropped_leaves_a_given_schema_too(tmp_path):
    records = read(write(tmp_path / "in.jsonl", ROWS))
    prepare.prepare(records, tmp_path, "whole", prepare.Options())
    whole = source.load_schema(str(tmp_path), "whole")
    prepare.prepare(records, tmp_path, "part", prepare.Options(drop=("age",)), whole)
    part = source.load_schema(str(tmp_path), "part")
    assert [f for f in whole.features if f.name != "age"] == list(part.features)


def csv(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "in.csv"
    path.write_text(text)
    return path


def test_columns_whose_kinds_are_given(tmp_path):
    path = csv(tmp_path, "items,zip,age,tags\na|b,01234,30,u;v\na,99999,,u\n")
    (one, two), _ = readers.read(path, columns=readers.Columns(categorical=("zip",)))
    assert one.context == {"zip": "01234", "age": 30.0, "tags": "u;v"}
    assert two.context["zip"] == "99999"
    for columns, message in (
        (readers.Columns(categorical=("zipp",)), "--categorical names 'zipp'"),
        (readers.Columns(multi_valued=("items",)), "--multi_valued names 'items'"),
        (readers.Columns(numerical=("tags",)), "in.csv:2: 'tags' is 'u;v', not a number"),
        (readers.Columns(separator=""), "--separator is empty"),
    ):
        with pytest.raises(UserError, match=message):
            readers.read(path, columns=columns)
    with pytest.raises(UserError, match="--categorical is for CSV"):
        read(write(tmp_path / "in.jsonl", ROWS), columns=readers.Columns(categorical=("day",)))
    with pytest.raises(UserError, match="two columns are called 'tag'"):
        readers.read(csv(tmp_path, "items,tag,tag\na,1,2\n"))


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

    assert "--seed has no place beside --input" in refusal(f"--input={path}", "--seed=3")
    assert "--columns has no place beside --synthetic" in refusal(
        "--synthetic=stylist", "--columns=items:x"
    )
    assert "--longer=subsample needs --max_items" in refusal(
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
    prepare.prepare(records, tmp_path, "own", prepare.Options())
    assert {path.name for path in (tmp_path / "own").iterdir()} == {"1.0.0", "lock"}
    here = f"is in use by process {os.getpid()} on .*; wait for it or use another --name"
    schema = source.load_schema(str(tmp_path), "own")
    with files.Lock(tmp_path / "own", "--name"), pytest.raises(UserError, match=here):
        builder.write(tmp_path, "own", {"train": records}, schema, overwrite=True)
    with pytest.raises(UserError, match="exists; pass --overwrite"):
        builder.write(tmp_path, "own", {"train": records}, schema)


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
