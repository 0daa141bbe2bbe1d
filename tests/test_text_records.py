"""Text records are read from every format, and a bad row is refused in a line."""

import csv
import json

import pyarrow
import pyarrow.parquet
import pytest

from cbert.data import readers, tables
from cbert.data.examples import from_bytes, to_bytes
from cbert.data.text_records import LONGEST_TEXT, Text
from cbert.errors import UserError

ROWS = [
    {"id": "a", "group": "g", "text": "Is it?", "text_b": "Yes, it is.", "label": "yes"},
    {
        "id": "b",
        "group": "g",
        "text": "Was it?",
        "text_b": "No 😀 中.",
        "context": {"day": "mon"},
    },
]


def write(path, *rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def read(path, **options):
    return list(readers.read(path, "text", **options))


def test_json_lines_may_have_other_names(tmp_path):
    """Such as those of question answering, whose passage stands under `context`."""
    rows = [
        {"question": "Is it?", "context": "Yes, it is.", "label": "y", "text": "A title"},
        {"question": "Was it?", "label": "n"},
    ]
    path = write(tmp_path / "in.jsonl", *rows)
    columns = tables.Columns({"text": "question", "text_b": "context"})
    assert [record.text for record in read(path, columns=columns)] == [
        Text("Is it?", "Yes, it is.", label="y"),
        Text("Was it?", label="n"),
    ]
    assert [record.context for record in read(path, columns=columns)] == [{}, {}]
    asked = {"text": "question", "text_b": "context"}
    for names, message in (
        ({**asked, "words": "tokens"}, "no row has 'tokens', which columns takes as 'words'"),
        ({**asked, "txt": "label"}, "columns maps 'txt'; the fields are"),
        ({**asked, "text": "context"}, "columns maps 'context' to text and text_b"),
    ):
        with pytest.raises(UserError, match=message):
            read(path, columns=tables.Columns(names))


def test_formats_give_the_same_records(tmp_path):
    expected = [
        Text("Is it?", "Yes, it is.", label="yes"),
        Text("Was it?", "No 😀 中."),
    ]
    plain = read(write(tmp_path / "in.jsonl", *ROWS))
    assert [record.text for record in plain] == expected
    assert [record.items for record in plain] == [[], []]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "in.parquet")
    assert [record.text for record in read(tmp_path / "in.parquet")] == expected
    (tmp_path / "in.csv").write_text(
        'id,group,text,second,label,day\na,g,Is it?,"Yes, it is.",yes,\n'
        "b,g,Was it?,No 😀 中.,,mon\n"
    )
    columns = tables.Columns({"text_b": "second"})
    assert read(tmp_path / "in.csv", columns=columns) == plain
    assert [from_bytes(to_bytes(record)) for record in plain] == plain


@pytest.mark.parametrize("column", ["words", "tags", "label"])
def test_a_python_list_of_words_tags_or_labels_is_refused(tmp_path, column):
    row = {"words": "a|b", "tags": "O|O", "label": "x", column: "['a', 'b']"}
    path = tmp_path / "in.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([row, row.values()])
    with pytest.raises(UserError, match=f"in.csv:2: column '{column}' has .*, a list as Py"):
        read(path)
    path.write_text("words,tags,label\n[1],O,[1]\n")
    assert read(path)[0].text == Text("[1]", None, ["[1]"], ["O"], "[1]")


def test_words_tags_lists_numbers_and_answers_in_csv(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("words,tags,label\nTo|San Jose,O|B,3\n")
    (record,) = read(path)
    assert record.text == Text("To San Jose", None, ["To", "San Jose"], ["O", "B"], "3")
    (record,) = read(path, columns=tables.Columns(numerical=("label",)))
    assert record.text.label == 3.0
    (record,) = read(path, columns=tables.Columns(multi_valued=("label",)))
    assert record.text.label == ["3"]
    path.write_text("text,price\nIn Rome,3\n")
    columns = tables.Columns({"label": "price"}, numerical=("label",))
    with pytest.raises(
        UserError, match="names 'label', which is the column 'price'; name that"
    ):
        read(path, columns=columns)
    path.write_text("text,answer,answer_start\nIn Rome,Rome,3.0\nNowhere,,\n")
    one, other = read(path)
    assert one.text.answer == {"text": "Rome", "start": 3}
    assert other.text.answer is None
    table = pyarrow.table({"text": ["In Rome", "No"], "answer": ["Rome", None]})
    for starts in ([3, None], [3.0, None]):
        whole = table.append_column("answer_start", [starts])
        pyarrow.parquet.write_table(whole, tmp_path / "in.parquet")
        answers = [row.text.answer for row in read(tmp_path / "in.parquet")]
        assert answers == [{"text": "Rome", "start": 3}, None]
    path.write_text("text,answer,answer_start\nIn Rome,Rome,x\n")
    with pytest.raises(UserError, match=r"in.csv:2: 'answer_start' is 'x'"):
        read(path)
    path.write_text("texts,label\nIn Rome,x\n")
    mistake = "no column 'text', only 'texts', 'label'; rename one, or of a file map it"
    with pytest.raises(UserError, match=mistake):
        read(path)


def test_an_empty_cell_of_text_is_not_taken_for_a_name_that_has_to_be_mapped(tmp_path):
    (tmp_path / "in.csv").write_text("text,label\n,a\n")
    with pytest.raises(UserError, match=r"'words' as a list of strings$"):
        read(tmp_path / "in.csv")


def test_columns_of_these_names_stay_context_where_the_records_are_items(tmp_path):
    (tmp_path / "in.csv").write_text("items,text,label\na|b,x,y\n")
    (record,) = readers.read(tmp_path / "in.csv")
    assert record.context == {"text": "x", "label": "y"}
    assert record.text is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"items": ["a"]}, "of strings, or of a file map it with columns=text:NAME"),
        ({"text": 3}, "'text' must be a string, not 3"),
        ({"text": " \n "}, "'text' is empty"),
        ({"text": "\u200b \u0001\ufeff"}, "'text' is empty or of invisible characters"),
        ({"text": "\ufffd\ufffd"}, "'text' is empty or of invisible characters"),
        ({"words": ["\u200b", "\ufeff"]}, "'words' has invisible characters only"),
        ({"text": "a", "text_b": ""}, "'text_b' is empty"),
        ('{"text": "\\ud800"}', r"text '\ud800' is not valid Unicode; leave out halves of"),
        ('{"words": ["a", "\\udfff"]}', r"words '\udfff' is not valid Unicode"),
        ({"text": "a" * (LONGEST_TEXT + 1)}, "has 1000001 characters; give at most 1000000"),
        ({"words": []}, "'words' is empty"),
        ({"words": "a b"}, "'words' must be a list of strings"),
        ({"words": ["a", ""]}, "'words' holds ''"),
        ({"words": ["a", 1]}, "'words' holds 1"),
        ({"words": ["a"], "text_b": "b"}, "with 'words' cannot have 'text_b'"),
        ({"words": ["a", "b"], "tags": ["O"]}, "there are 1 tags for 2 words"),
        ({"text": "a", "tags": ["O"]}, "'tags' needs 'words'"),
        ({"text": "a", "label": {}}, "'label' is {}; use a string"),
        ({"text": "a", "label": ""}, "'label' holds ''"),
        ({"text": "a", "label": ["x", None]}, "'label' holds None"),
        ('{"text": "a", "label": 1e999}', "'label' is inf"),
        ({"text": "a", "label": -1e300}, "a finite number, smaller than 1e+30 in size"),
        ('{"text": "a", "label": NaN}', "'label' is nan"),
        ({"text": "a", "answer": "a"}, "'answer' is 'a'; it must be an object"),
        ({"text": "a", "answer": {"text": "a"}}, "it must be an object of text and start"),
        ({"text": "ab", "answer": {"text": "b", "start": 0}}, "the text has 'a' at 0"),
        ({"text": "ab", "answer": {"text": "b", "start": -1}}, "start is -1"),
        ({"text": "ab", "answer": {"text": "b", "start": True}}, "start is True"),
        ({"text": "ab", "answer": {"text": "", "start": 0}}, "without an answer use null"),
        ({"text": "a", "text_b": "b", "answer": {"text": "a", "start": 0}}, "has 'b' at 0"),
        ({"text": "a", "context": {"x": [1, "a"]}}, "a list holds strings or numbers"),
        ({"text": "a", "id": "first"}, "id 'first' was used before"),
    ],
)
def test_a_bad_row_is_named_with_its_value_and_can_be_left_out(tmp_path, row, message):
    path = write(tmp_path / "in.jsonl", {"id": "first", "text": "good"}, row)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    bad_rows = readers.BadRows(path, 1)
    assert [record.id for record in read(path, bad_rows=bad_rows)] == ["first"]
    assert len(bad_rows.messages) == 1


def test_labels_are_of_one_kind_and_null_is_none(tmp_path):
    rows = [{"text": "a", "label": label} for label in (None, "x", True, None, ["x"])]
    path = write(tmp_path / "in.jsonl", *rows)
    with pytest.raises(
        UserError, match=r":5: 'label' is \['x'\], a list of strings; it was a st"
    ):
        read(path)
    bad_rows = readers.BadRows(path, 1)
    labels = [record.text.label for record in read(path, bad_rows=bad_rows)]
    assert labels == [None, "x", "true", None]


def test_a_column_with_nearly_the_name_of_a_field_is_pointed_out(tmp_path, capsys):
    path = tmp_path / "in.csv"
    path.write_text("text,Label, Weight ,words_seen\na b,x,2,3\n")
    columns = tables.Columns()
    (record,) = readers.read(path, "text", columns)
    assert record.text.label is None
    assert record.context["Label"] == "x"
    warnings = capsys.readouterr().err.splitlines()
    assert [line.partition("; ")[2] for line in warnings] == [
        "rename it 'label', or of a file give columns=label:COLUMN, if it is that",
        "rename it 'weight', or of a file give columns=weight:COLUMN, if it is that",
    ]
    (record,) = readers.read(path, "text", tables.Columns({"label": "Label"}))
    assert record.text.label == "x"


def test_whole_numbers_of_parquet_are_classes_where_they_are_categorical(tmp_path):
    path = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "label": [3]}), path)
    for categorical, label in (((), 3.0), (("label",), "3")):
        columns = tables.Columns(categorical=categorical)
        (record,) = readers.read(path, "text", columns)
        assert record.text.label == label


def test_texts_among_items_are_told_of_their_kind(tmp_path):
    path = write(tmp_path / "in.jsonl", {"text": "a"})
    with pytest.raises(UserError, match="the records hold texts, so give kind=text"):
        list(readers.read(path))
    (tmp_path / "in.jsonl").write_text("\n")
    with pytest.raises(UserError, match="give at least one, with a string 'text'"):
        read(tmp_path / "in.jsonl")


def test_columns_named_as_fields_of_texts_can_be_dropped(tmp_path):
    fields = ("tags", "words", "answer")
    table = pyarrow.table({"text": ["a b"], **{field: ["x y"] for field in fields}})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    (tmp_path / "in.csv").write_text("text,tags,words,answer\na b,x y,x y,x y\n")
    for name in ("in.csv", "in.parquet"):
        (record,) = readers.read(tmp_path / name, "text", dropped=fields)
        assert record.text == Text("a b")
        assert record.context == dict.fromkeys(fields)
    for kept in ("tags", "answer"):
        dropped = [field for field in fields if field != kept]
        with pytest.raises(UserError, match=f"needs another name, or .*drop={kept}"):
            list(readers.read(tmp_path / "in.csv", "text", dropped=dropped))
