"""Small files that unpack to more than memory holds, and tables with odd columns."""

import datetime
import gzip
import pathlib
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from cbert.data import readers, tables
from cbert.errors import UserError
from cbert.training import evaluations, workdir
from tests.conftest import ROOT

ADDRESS_SPACE = 3_000_000  # Kibibytes, for `ulimit -v`.


def refused_within_memory(path: pathlib.Path) -> str:
    """The one line in which `prepare` refuses a file when memory is short."""
    command = (
        f"ulimit -v {ADDRESS_SPACE}; exec {sys.executable} -m experiments.prepare "
        f"--input={path} --name=bad --data_dir={path.parent}/data"
    )
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stderr.startswith("error: "), done.stderr[-2000:]
    assert done.stderr.count("\n") == 1, done.stderr[-2000:]
    assert not (path.parent / "data" / "bad").exists()
    return done.stderr


def write_compressed(path: pathlib.Path, head: bytes, part: bytes, count: int) -> None:
    """Writes gzip members that unpack to the head and to one part so many times."""
    path.write_bytes(gzip.compress(head) + gzip.compress(part) * count)


@pytest.mark.soak
def test_lines_that_unpack_to_a_gibibyte_and_a_half(tmp_path):
    path = tmp_path / "in.csv.gz"
    write_compressed(path, b"items,day\n", b"a" * 2**20, 1536)
    assert path.stat().st_size < 8e6
    assert f"{path}:2: the row takes more than 16777216 bytes" in refused_within_memory(path)
    path = tmp_path / "in.jsonl.gz"
    write_compressed(path, b'{"items": ["', b"a" * 2**20, 1536)
    assert f"{path}:1: the row takes more than 16777216 bytes" in refused_within_memory(path)


def test_a_csv_row_of_many_lines_that_unpack(tmp_path):
    """A quoted cell may hold line ends, and each line alone is short."""
    path = tmp_path / "in.csv.gz"
    write_compressed(path, b'items,day\na,"', b"line\n" * 200_000, 1500)
    assert "the row takes more than 16777216 bytes" in refused_within_memory(path)


def dictionary_of_one(text: str, rows: int) -> pyarrow.Array:
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, "int32"), [text])


def test_a_parquet_string_that_unpacks_sixty_thousand_times(tmp_path):
    """A file of two kilobytes holds 12 GB: a cell is longer than a feature's value may be."""
    columns = {
        "items": pyarrow.array([["a", "b"]] * 60_000),
        "note": dictionary_of_one("x" * 200_000, 60_000),
    }
    path = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")
    assert path.stat().st_size < 4000
    assert "in.parquet:1: context 'note'" in refused_within_memory(path)


def test_a_parquet_cell_and_a_parquet_row_above_the_limit(tmp_path):
    path = tmp_path / "in.parquet"
    long_cell = pyarrow.array(["b", "x" * (tables.MAX_ROW + 1)])
    table = pyarrow.table({"items": pyarrow.array([["a"]] * 2), "note": long_cell})
    pyarrow.parquet.write_table(table, path, compression="zstd")
    assert f"{path}:2: the row takes more than 16777216 bytes" in refused_within_memory(path)
    words = dictionary_of_one("y" * 9_000, 200_001)
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1, 200_001], "int32"), words)
    pyarrow.parquet.write_table(pyarrow.table({"items": lists}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    assert f"{path}:2: the row takes more than 16777216 bytes" in refused_within_memory(path)


def test_rows_below_the_limit_are_read_from_every_format(tmp_path):
    """Forty rows of a mebibyte each are below the limit, though their sum is not."""
    items = [f"{number:07d}" + "z" * 9_000 for number in range(110)]
    (tmp_path / "in.csv").write_text("items\n" + ("|".join(items) + "\n") * 40)
    pyarrow.parquet.write_table(pyarrow.table({"items": [items] * 40}), tmp_path / "in.parquet")
    for name in ("in.csv", "in.parquet"):
        records = list(readers.read(tmp_path / name))
        assert [record.items for record in records] == [items] * 40
        assert [record.id for record in records][0::39] in (
            ["row-1", "row-40"],
            ["row-2", "row-41"],
        )


def test_a_csv_of_a_hundred_thousand_columns(tmp_path):
    """A search for duplicate names that compared all pairs would not end in time."""
    names = [f"column {number}" for number in range(100_000)]
    path = tmp_path / "in.csv"
    path.write_text(",".join(["items", *names]) + "\n" + ",".join(["a", *["1"] * 100_000]))
    (record,) = readers.read(path)
    assert len(record.context) == 100_000
    path.write_text(",".join(["items", *names, "column 7"]) + "\n")
    with pytest.raises(UserError, match="two columns are called 'column 7'; rename one"):
        list(readers.read(path))


def write_parquet(path: pathlib.Path, **columns) -> pathlib.Path:
    table = pyarrow.table({"items": [["a"]] * 2, **columns})
    pyarrow.parquet.write_table(table, path)
    return path


def test_parquet_dates_and_times_are_text(tmp_path):
    nanoseconds = pyarrow.array([1, None], pyarrow.timestamp("ns"))
    day = pyarrow.array([datetime.date(2024, 2, 29), datetime.date(1, 1, 1)])
    far = pyarrow.array([10_000_000, 0], pyarrow.date32())  # The first is in the year 29349.
    path = write_parquet(
        tmp_path / "in.parquet",
        at=nanoseconds,
        day=day,
        far=far,
        days=pyarrow.array([[0], None], pyarrow.list_(pyarrow.date32())),
        large=pyarrow.array([[0], None], pyarrow.large_list(pyarrow.date32())),
        context=pyarrow.StructArray.from_arrays(
            [pyarrow.array([datetime.time(1), None], pyarrow.time64("us"))], ["hour"]
        ),
    )
    one, other = readers.read(path)
    assert one.context["at"] == "1970-01-01 00:00:00.000000001"
    assert one.context["day"] == "2024-02-29"
    assert one.context["far"] == "29349-01-26"
    assert one.context["large"] == one.context["days"] == ["1970-01-01"]
    assert one.context["days"] == ["1970-01-01"]
    assert one.context["hour"] == "01:00:00.000000"
    assert other.context == {
        **dict.fromkeys(("at", "days", "hour", "large")),
        "day": "0001-01-01",
        "far": "1970-01-01",
    }


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_parquet_texts_that_are_encoded_by_their_differences(tmp_path, encoding):
    rows = [{"items": [f"i{n}", "é"], "day": f"day {n}"} for n in range(70)]
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(rows),
        tmp_path / "in.parquet",
        row_group_size=40,
        use_dictionary=False,
        column_encoding={"items.list.element": encoding, "day": encoding},
    )
    records = list(readers.read(tmp_path / "in.parquet"))
    assert [{"items": r.items, **r.context} for r in records] == rows


def test_parquet_columns_of_one_name_are_refused(tmp_path):
    column = pyarrow.array([["a"]])
    tag = pyarrow.array(["x"])
    for name, table in {
        "items": pyarrow.table([column, column], names=["items", "items"]),
        "tag": pyarrow.table([column, tag, tag], names=["items", "tag", "tag"]),
        "day": pyarrow.table({"items": column, "day": tag, "context": [{"day": "mon"}]}),
    }.items():
        pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
        with pytest.raises(UserError, match=f"two columns are called '{name}'; rename one"):
            list(readers.read(tmp_path / "in.parquet"))


def test_compressed_json_lines_still_end_where_they_end(tmp_path):
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"items": ["a"]}\n\n{"items": ["b"]}'))
    assert [record.id for record in readers.read(path)] == ["row-1", "row-3"]


def test_results_nested_too_deeply_count_as_none(tmp_path):
    (tmp_path / "eval").mkdir()
    for path in (tmp_path / workdir.FINISHED, evaluations.path(tmp_path, "test")):
        path.write_text(100_000 * "[")
    assert workdir.finished(tmp_path) is None
    assert evaluations.read(tmp_path, "test") is None
