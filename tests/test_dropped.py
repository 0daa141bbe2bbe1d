"""Features that are dropped may be anything: they are named, and not read."""

import pandas
import pyarrow
import pyarrow.parquet
import pytest

import cbert
from cbert.data import in_python, readers, tables
from cbert.errors import UserError
from tests.test_prepare import csv

DROPPED = ("odd", "empty")


def read(path, **options):
    return [record.context for record in readers.read(path, dropped=DROPPED, **options)]


def test_lists_of_python_and_empty_columns_of_csv(tmp_path, capsys):
    path = csv(tmp_path, "items,odd,empty,age\na,\"['x', 'y']\",,3\nb,1|2,,4\n")
    assert [context["age"] for context in read(path)] == [3.0, 4.0]
    assert all(context[name] is None for context in read(path) for name in DROPPED)
    assert not capsys.readouterr().err
    with pytest.raises(UserError, match=r"column 'odd' has .*, a list as Python writes it"):
        list(readers.read(path))


def test_maps_of_parquet(tmp_path):
    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    odd = pyarrow.array([[("k", "v")], [("k", "w")]], kind)
    table = pyarrow.table({"items": [["a"], ["b"]], "odd": odd, "age": [3, 4]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    assert [context["age"] for context in read(tmp_path / "in.parquet")] == [3, 4]
    bad_rows = readers.BadRows(tmp_path / "in.parquet", 2)
    with pytest.raises(UserError, match="no records"):
        list(readers.read(tmp_path / "in.parquet", bad_rows=bad_rows))
    assert "context 'odd' is [('k', 'v')]" in bad_rows.messages[0]


def test_mixed_columns_of_a_data_frame(tmp_path):
    frame = pandas.DataFrame({"items": [["a"], ["b"]], "odd": [1, "x"], "age": [3, 4]})
    contexts = [record.context for record in in_python.read(frame, "set", None, DROPPED)]
    assert [context["age"] for context in contexts] == [3, 4]
    assert contexts[0]["odd"] is None
    with pytest.raises(UserError, match=r"mixed types in a column .*, and arrays as lists"):
        list(in_python.read(frame, "set"))
    rows = pandas.concat(
        [frame.assign(group=str(n), items=[["a", "b"]] * 2) for n in range(40)]
    )
    prepared = cbert.prepare(rows, "own", tmp_path, cbert.PrepareOptions(drop=("odd",)))
    assert "age" in prepared.summary["features"]
    assert "odd" not in prepared.summary["features"]


def test_decimals_of_parquet_are_numbers(tmp_path):
    prices = pyarrow.array(["1.50", None], pyarrow.string()).cast(pyarrow.decimal128(9, 2))
    table = pyarrow.table({"items": [["a"], ["b"]], "price": prices})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    assert [context.get("price") for context in read(tmp_path / "in.parquet")] == [1.5, None]


def test_a_column_is_mapped_to_one_field(tmp_path):
    path = csv(tmp_path, "foods,age\na|b,3\n")
    columns = tables.Columns({"items": "foods", "group": "foods"})
    with pytest.raises(
        UserError, match="columns maps 'foods' to items and group; name another"
    ):
        read(path, columns=columns)
    columns = tables.Columns({"text": "foods"})
    with pytest.raises(UserError, match="; where the records hold texts, give kind=text"):
        read(path, columns=columns)
