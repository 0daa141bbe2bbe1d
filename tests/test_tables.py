"""What tables and records may hide: open quotes, columns without names, unknown fields."""

import dataclasses
import subprocess
import sys
from csv import writer as csv_writer

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from cbert.data import in_python, parquet_rows, prepare, prepared, readers, tables
from cbert.data.columns import Texts
from cbert.data.overview import Overview
from cbert.data.validator import Validator
from cbert.errors import UserError
from tests.test_prepare import csv, make_prepared, rows
from tests.test_records import read, write


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('items,size\na,"5 inch\nb,6\nc,7\n', 2),
        ('items,size\na,"5 inch\nb,"6 inch\n', 2),
    ],
)
def test_a_quote_that_is_not_closed_takes_no_rows(tmp_path, text, line):
    with pytest.raises(UserError, match=rf"in.csv:{line}: .*, close each quote"):
        read(csv(tmp_path, text))


def test_rows_with_other_cells_decide_no_kind(tmp_path):
    path = csv(tmp_path, "items,name,age\na,Ann,3\nb,Smith, J,x\nc,Cy,5\n")
    bad_rows = readers.BadRows(path, 1)
    read_rows = read(path, bad_rows=bad_rows)
    assert [record.context["age"] for record in read_rows] == [3.0, 5.0]
    assert "in.csv:3: the row has more cells" in bad_rows.messages[0]


def test_a_row_that_is_refused_keeps_neither_its_id_nor_its_kinds():
    validator = Validator()
    with pytest.raises(UserError, match="'group' must be a string that is not empty"):
        validator({"id": "1", "group": "", "items": ["a"], "context": {"age": 3}}, 1)
    record = validator({"id": "1", "items": ["a"], "context": {"age": "old"}}, 2)
    assert (record.group, record.context) == ("1", {"age": "old"})


def test_an_index_of_pandas_is_no_feature(tmp_path):
    with pytest.raises(UserError, match="column 1 has no name; name it, or leave it out"):
        read(csv(tmp_path, ",items,age\n0,a,3\n1,b,4\n"))
    table = pyarrow.table({"items": [["a"], ["b"]], "age": [3, 4], "__index_level_0__": [5, 7]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    assert [one.context for one in read(tmp_path / "in.parquet")] == [{"age": 3}, {"age": 4}]


# A process that has written such columns reads them in any case.
READ_CONTEXTS = """
import sys
from cbert.data import readers
from cbert.errors import UserError
if len(sys.argv) > 2:
    sys.modules["pandas"] = None
try:
    print([record.context for record in readers.read(sys.argv[1])])
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("without", [(), ("without pandas",)])
def test_periods_and_intervals_of_parquet_are_text(tmp_path, without):
    """Months since 1970 would be a numerical feature without a word."""
    months = pandas.PeriodIndex(["2024-05", None], freq="M")
    ages = pandas.arrays.IntervalArray.from_tuples([(18, 30), (30, 45)])
    path = tmp_path / "in.parquet"
    frame = pandas.DataFrame({"items": [["a"], ["b"]], "month": months, "age": ages})
    frame.to_parquet(path)
    command = [sys.executable, "-c", READ_CONTEXTS, path, *without]
    read_elsewhere = subprocess.run(command, capture_output=True, text=True, check=True)
    text = [{"month": "2024-05", "age": "(18, 30]"}, {"month": None, "age": "(30, 45]"}]
    refused = (
        f"{path}: column 'month' is of the type pandas.period, which only pandas can read; "
        "install pandas, or write the column as text (pandas: .astype(str))"
    )
    assert read_elsewhere.stdout == f"{refused if without else text}\n"


def test_fields_that_records_do_not_have_are_named_once(tmp_path, capsys):
    examples = [{"items": ["a"], "wieght": 3, "age": n, "context": {}} for n in range(3)]
    path = write(tmp_path / "in.jsonl", examples)
    read(path)
    assert capsys.readouterr().err == (
        f"warning: {path}:1: the field 'age' is ignored; a feature belongs in 'context'\n"
        f"warning: {path}:1: the field 'wieght' is ignored; did you mean 'weight'?\n"
    )
    list(in_python.read(examples[1:], "set"))
    assert "warning: record 1: the field 'age' is ignored" in capsys.readouterr().err
    list(in_python.read([{"items": ["a"], "tags": ["x"], "context": {}}], "sequence"))
    assert capsys.readouterr().err == (
        "warning: record 1: the field 'tags' is ignored; only kind=text has it, with a list of "
        "'words' in place of 'items'\n"
    )
    read(
        write(tmp_path / "in.jsonl", [{"text": "a", "labels": ["x"]}, {"text": "b"}]),
        kind="text",
    )
    assert "'labels' is ignored; did you mean 'label'?" in capsys.readouterr().err
    for kind, row in (("text", {"text": "a"}), ("set", {"items": ["a"]})):
        list(in_python.read([{**row, "window": 3, "context": {}}], kind))
        assert capsys.readouterr().err == (
            "warning: record 1: the field 'window' is ignored; a feature belongs in 'context'\n"
        )


def test_records_whose_features_are_all_outside_a_context_are_refused(tmp_path, capsys):
    flat = [{"items": ["a"], "plan": "free", "age": n} for n in range(3)]
    path = write(tmp_path / "in.jsonl", flat)
    advice = r"""write "context": \{"age": ...\}, or Parquet or CSV, .* or give drop=age,plan"""
    with pytest.raises(UserError, match=rf"in.jsonl: no record has a 'context', .*{advice}"):
        read(path)
    with pytest.raises(UserError, match=f"the records: no record has a 'context', .*{advice}"):
        list(in_python.read(flat, "set"))
    capsys.readouterr()
    contexts = [one.context for one in readers.read(path, dropped=("plan", "age"))]
    assert contexts == [{"plan": None, "age": None}] * 3
    assert not capsys.readouterr().err
    # One record with a context, or without the fields, shows that they may be notes.
    for last in ({"items": ["b"], "plan": "pro", "context": {}}, {"items": ["b"]}):
        assert len(read(write(tmp_path / "in.jsonl", [*flat, last]))) == 4


def test_held_out_vectors_are_not_counted():
    overview = Overview("set")
    context = {"image": [0.5, 1.5], "tags": ["x", "y", "x"], "day": "mon", "age": 3.0}
    (record,) = [Validator()({"items": ["a"], "context": context}, 1)]
    for split in ("train", "validation", "test"):
        overview.add(record, split)
    assert overview.held_out == {"tags": {"x": 2, "y": 2}, "day": {"mon": 2}}
    assert overview.extremes["image"] == [(0.5, record.id), (1.5, record.id)]


@pytest.mark.parametrize(("kind", "equal"), [("set", 2), ("sequence", 1)])
def test_the_order_of_a_set_makes_no_other_example(kind, equal):
    overview, validator = Overview(kind), Validator(kind)
    for number, items in enumerate(("ab", "ba", "ab", "ac")):
        record = validator({"items": list(items)}, number)
        overview.add(record, "test" if number else "train")
    assert overview.duplicates() == equal


def test_numbers_that_no_model_could_read_are_refused_by_their_record(tmp_path):
    def prepared(*, age, target_split):
        rows = [
            {"id": f"r{n}", "items": ["a", "b"], "context": {"age": n}, "split": split}
            for n, split in enumerate(["train", "train", "validation", "test"])
        ]
        rows[3] |= {"context": {"age": age}, "split": target_split}
        path = write(tmp_path / "in.jsonl", rows)
        options = prepare.PrepareOptions(kind="set", overwrite=True)
        return prepare.prepare(readers.read(path), tmp_path, "own", options)

    with pytest.raises(UserError, match=r"record 'r3': context feature 'age' is -1e\+13, too"):
        prepared(age=-1e13, target_split="test")
    prepared(age=-1e11, target_split="test")
    # Among the training examples it decides the deviation itself.
    prepared(age=1e13, target_split="train")


def test_histories_of_whole_numbers_name_items(tmp_path):
    table = pyarrow.table({"items": [[7], [8]], "bought": [[8, 9], None]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    columns = tables.Columns(history=("bought",))
    one, two = read(tmp_path / "in.parquet", columns=columns)
    assert (one.context, two.context) == ({"bought": ["8", "9"]}, {})
    table = pyarrow.table({"items": [[7]], "context": [{"bought": [8, 9], "sizes": [1, 2]}]})
    pyarrow.parquet.write_table(table, tmp_path / "struct.parquet")
    of_schema = tables.Columns(of_schema={"bought": "history"})
    for kinds in (columns, of_schema):
        ((_, row),) = parquet_rows.rows(tmp_path / "struct.parquet", kinds)
        assert row["context"] == {"bought": ["8", "9"], "sizes": [1, 2]}


def test_a_schema_decides_the_kinds_of_csv_columns(tmp_path):
    path = csv(tmp_path, "items,zip,age,tags,seen\na,10000,3,u|v,b|a\n")
    kinds = {"zip": "categorical", "tags": "multi_valued", "seen": "history", "gone": "history"}
    (record,) = read(path, columns=tables.Columns(of_schema=kinds))
    assert record.context == {
        "zip": "10000",
        "age": 3.0,
        "tags": ["u", "v"],
        "seen": ["b", "a"],
    }
    columns = tables.Columns(numerical=("zip",), of_schema=kinds)
    assert read(path, columns=columns)[0].context["zip"] == 10000.0
    with pytest.raises(UserError, match="multi_valued and history both name 'tags'"):
        tables.Columns(multi_valued=("tags",), history=("tags",)).check_kinds()


def test_booleans_of_csv_are_those_of_json(tmp_path):
    path = csv(tmp_path, "items,vip,paid,said\na,True,FALSE,Trueish\nb,true,,TRUE\n")
    one, two = read(path)
    assert one.context == {"vip": "true", "paid": "false", "said": "Trueish"}
    assert two.context == {"vip": "true", "said": "true"}
    (tmp_path / "in.jsonl").write_text('{"items": ["a"], "context": {"vip": true}}\n')
    (record,) = read(tmp_path / "in.jsonl")
    assert record.context == {"vip": one.context["vip"]}


@pytest.mark.parametrize("cell", ["['a b', 'c']", "[]", "[0.5, -1e-3]", "[ 1.  2.]", '["a"]'])
def test_a_list_as_python_writes_it_is_refused(tmp_path, cell):
    path = tmp_path / "in.csv"
    for header, row in (("items,bought", ("a", cell)), ("items,age", (cell, "3"))):
        with path.open("w", newline="") as file:
            csv_writer(file).writerows([header.split(","), row])
        with pytest.raises(UserError, match=r"in.csv:2: column '\w+' has .*, a list as Python"):
            read(path)
    path.write_text("items,size\n[sic]|b,[about] a metre [1]\n")
    assert read(path)[0].items == ["[sic]", "b"]


def test_values_that_a_given_schema_leaves_out_are_counted(tmp_path, capsys):
    schema, _, _ = make_prepared(tmp_path, rows())
    one = dataclasses.replace(schema.feature("tags"), max_values=1)
    features = tuple(one if f.name == "tags" else f for f in schema.features)
    short = dataclasses.replace(schema, features=features)
    examples = read(write(tmp_path / "in.jsonl", rows(context={"tags": ["y", "x"]})))
    prepare.prepare(examples, tmp_path, "short", prepare.PrepareOptions(), short)
    assert "'tags' has more than 1 values in 1 records" in capsys.readouterr().err
    split = prepared.load(str(tmp_path), "short", "test", short)
    assert split.context["tags"].tolist() == [[one.codes["y"]]]


def test_a_part_of_a_column_is_that_part():
    texts = Texts(pyarrow.chunked_array([["a", "b"], ["c", "d", "e"]]))
    whole = list("abcde")
    for part in (
        slice(1, 4),
        slice(None),
        slice(4, 2),
        slice(-2, None),
        slice(0, 99),
        slice(4, 0, -2),
    ):
        assert texts[part] == whole[part]
